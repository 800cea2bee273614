# toolkit.sh: for scripts that compile kernels, which source it with root set. NVRTC
# of CUDA 12.8 (the first that knows sm_100, and its images load into every driver
# of CUDA 12 and later), what packs images, and headers are fetched from PyPI into
# build/nvrtc, and kernelc is built. Afterwards
#   nvrtc_version  is the compiler's version
#   kernelc        is the command
#   toolkit        is the value of its option -toolkit
nvrtc_version=12.8.93
kernelc_ready() {
  venv="$root/build/nvrtc"
  if [ ! -e "$venv/complete-$nvrtc_version" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --no-deps nvidia-cuda-nvrtc-cu12==$nvrtc_version nvidia-nvfatbin-cu12==12.8.90 \
      nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-cccl-cu12==12.8.90
    touch "$venv/complete-$nvrtc_version"
  fi
  kernelc="$venv/kernelc"
  toolkit=$(echo "$venv"/lib/python3*/site-packages/nvidia)
  (cd "$root" && "${GO:-go}" build -o "$kernelc" ./internal/kernelc)
}
