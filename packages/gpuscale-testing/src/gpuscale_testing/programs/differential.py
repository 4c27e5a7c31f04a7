"""The module that `hpa-differential` is built from: the HPA controller's package with a clock put in.

Nothing of Kubernetes is kept here. A build copies the package's files from the module that Go has fetched,
rewrites their clock, and puts our own files beside them: those for every release, and those for this one.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuscale.base.errors import UpstreamError
from gpuscale_testing.programs.gocommand import go_environment, go_error
from gpuscale_testing.programs.toolset import MODULES, OWN_GO, Tool

_PACKAGE = "k8s.io/kubernetes/pkg/controller/podautoscaler"
_CLOCK = (("metav1.Now()", "metav1.NewTime(clockNow())"), ("time.Now()", "clockNow()"))
_OTHER_CLOCK = re.compile(r"\b(time|metav1|clock)\.(Now|NewTimer|Tick|After|RealClock)\b")


@contextmanager
def module_of(tool: Tool, go: str) -> Iterator[Path]:
    """Make the folder of the module that a program is built in, for as long as the block runs.

    Raises:
        UnavailableError: a module can't be fetched.
        UpstreamError: the controller reads the clock in a way that is not known here.
    """
    module = MODULES / tool.folder
    if not tool.is_own:
        yield module
        return
    with tempfile.TemporaryDirectory(prefix="gpuscale-go-") as folder:
        made = Path(folder)
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(module / name, made / name)
        _put_clock(_package_folder(go, module), made / "podautoscaler")
        inside = OWN_GO / "inside"
        for path in (*inside.glob("*.go"), *(inside / tool.folder).glob("*.go")):
            shutil.copyfile(path, made / "podautoscaler" / path.name)
        shutil.copytree(OWN_GO / "program", made / "program")
        yield made


def _package_folder(go: str, module: Path) -> Path:
    """Return where Go keeps the controller's package; it is fetched where it is not there."""
    listed = subprocess.run(  # noqa: S603 - words of our own
        [go, "list", "-mod=readonly", "-f", "{{.Dir}}", _PACKAGE],
        cwd=module,
        env=go_environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        raise go_error("hpa-differential can't be built", listed.stderr)
    return Path(listed.stdout.strip())


def _put_clock(package: Path, target: Path) -> None:
    """Copy a package's files with every look at the clock replaced."""
    target.mkdir()
    count = 0
    for path in package.glob("*.go"):
        if path.name.endswith("_test.go"):
            continue
        text = path.read_text()
        for theirs, ours in _CLOCK:
            count += text.count(theirs)
            text = text.replace(theirs, ours)
        if found := _OTHER_CLOCK.search(text):
            raise UpstreamError(
                f"{path}: found {found[0]}, a clock that the differential test can't set"
            )
        (target / path.name).write_text(text)
    if not count:
        raise UpstreamError(f"{package}: no look at the clock to replace")
