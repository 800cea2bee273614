"""install.sh of the archive, and the uninstall-shunt that it writes."""

import pathlib
import shutil
import subprocess

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "install-archive.sh"


def write(folder: pathlib.Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def files(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def folders(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()}


def archive(folder: pathlib.Path, *names: str) -> pathlib.Path:
    """An unpacked archive with these files, and those that all have."""
    write(folder, "bin/shunt", "include/shunt.h", "lib/libshunt.so.1", *names)
    (folder / "lib/libshunt.so").symlink_to("libshunt.so.1")
    shutil.copy(SCRIPT, folder / "install.sh")
    (folder / "install.sh").chmod(0o755)
    return folder


def run(*command: pathlib.Path | str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def test_nothing_is_left(tmp_path):
    """Neither of an archive, nor of the one before it, nor where the prefix has moved; what is of others stays, and
    folders that were there, also empty ones."""
    older = archive(tmp_path / "older", "lib/libshunt.so.1.0.0", "share/man/man1/shunt-old.1")
    newer = archive(tmp_path / "newer", "lib/shunt/plugins/shm", "share/man/man1/shunt.1", "share/zsh/_shunt")
    prefix, moved = tmp_path / "a prefix", tmp_path / "moved"
    others = {"bin/other", "lib/libother.so", "share/man/man1/other.1"}
    write(prefix, *others)
    (prefix / "include").mkdir()
    before = folders(prefix)
    run(older / "install.sh", prefix)
    run(newer / "install.sh", prefix)
    assert files(prefix) == files(newer) - {"install.sh"} | {"bin/uninstall-shunt"} | others
    prefix.rename(moved)
    run(moved / "bin/uninstall-shunt")
    assert (files(moved), folders(moved)) == (others, before)


def test_what_is_installed_is_for_all_users(tmp_path):
    """Also of an archive that was unpacked with a umask which keeps others out, and with that umask."""
    unpacked, prefix = archive(tmp_path / "archive", "lib/shunt/plugins/shm"), tmp_path / "a" / "prefix"
    (unpacked / "lib/shunt/plugins/shm").chmod(0o600)
    (unpacked / "bin/shunt").chmod(0o700)
    run("sh", "-c", 'umask 077 && exec "$0" "$1"', unpacked / "install.sh", prefix)
    run_by_all = {"bin/shunt", "bin/uninstall-shunt"}
    for name in files(prefix) - {"lib/libshunt.so"}:
        assert (prefix / name).stat().st_mode & 0o777 == (0o755 if name in run_by_all else 0o644), name
    for folder in folders(prefix.parent):
        assert (prefix.parent / folder).stat().st_mode & 0o777 == 0o755, folder


def test_a_relative_prefix_is_refused(tmp_path):
    install = archive(tmp_path / "archive") / "install.sh"
    ran = subprocess.run([install, "somewhere"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2 and "PREFIX somewhere is not absolute" in ran.stderr
    assert not (tmp_path / "somewhere").exists()
