// module.cpp: what Python sees.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <torch/version.h>

#include "backend.hpp"
#include "symmetric.hpp"
#include "work.hpp"

namespace py = pybind11;
using namespace shunt_torch;

namespace {

using Holder = c10::intrusive_ptr<ShuntBackend>;

c10::intrusive_ptr<ShuntBackend::Options> copy(const ShuntBackend::Options& options) {
  return c10::make_intrusive<ShuntBackend::Options>(options);
}

// As builtFrom, of what is compiled for each CPython.
#define SHUNT_TORCH_TEXT(x) #x
#define SHUNT_TORCH_PYTHON(major, minor) SHUNT_TORCH_TEXT(major) "." SHUNT_TORCH_TEXT(minor)
constexpr char kBuilt[] = "shunt.torch " SHUNT_TORCH_SOURCES " for torch " TORCH_VERSION
                          " and CPython " SHUNT_TORCH_PYTHON(PY_MAJOR_VERSION, PY_MINOR_VERSION);

}  // namespace

PYBIND11_MODULE(_C, m) {
  py::module_::import("torch._C._distributed_c10d");  // its classes are the bases of ours
  m.attr("torch_version") = TORCH_VERSION;
  m.attr("built") = py::make_tuple(builtFrom(), kBuilt);
  m.def("load", &load, "Finds the functions of libshunt in the library at this path.");
  m.def("await_ends", &awaitEnds, py::call_guard<py::gil_scoped_release>(),
        "Waits at most so long for the futures of calls on host memory, and until no call frees tensors; returns "
        "whether all have ended. Calls that end later free none.");
  m.def("offer_symmetric_memory", &offerSymmetricMemory, "Offers torch's symm_mem the backend SHUNT.");

  py::class_<ShuntBackend::Options, c10::intrusive_ptr<ShuntBackend::Options>, c10d::Backend::Options>(m, "Options")
      .def(py::init<>())
      .def("__copy__", &copy)
      .def("__deepcopy__", [](const ShuntBackend::Options& options, const py::dict&) { return copy(options); });

  py::class_<ShuntBackend, Holder, c10d::Backend>(m, "ShuntBackend")
      .def(py::init<c10::intrusive_ptr<c10d::Store>, int, int, c10::intrusive_ptr<ShuntBackend::Options>>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def_property_readonly(
          "options",
          [](ShuntBackend& self) {
            return c10::static_intrusive_pointer_cast<ShuntBackend::Options>(self.getBackendOptions());
          })
      .def(
          "monitored_barrier",
          [](ShuntBackend& self, std::chrono::milliseconds timeout, bool waitAllRanks) {
            c10d::BarrierOptions opts;
            opts.timeout = timeout;
            self.monitoredBarrier(opts, waitAllRanks);
          },
          py::arg("timeout"), py::arg("wait_all_ranks") = false, py::call_guard<py::gil_scoped_release>())
      .def("all_to_all_on_device", &ShuntBackend::alltoallOnDevice, py::arg("output"), py::arg("input"),
           py::arg("output_split_sizes"), py::arg("input_split_sizes"), py::call_guard<py::gil_scoped_release>())
      .def("communicator_handle", &ShuntBackend::communicatorHandle, py::arg("device"),
           py::call_guard<py::gil_scoped_release>())
      // Splitting needs nothing from ranks that are not in the new group.
      .def("perform_nocolor_split", [](ShuntBackend&, const at::Device&) {});
}
