"""A site's software for tests: modulefiles in Lua and Tcl for a real Lmod, a real venv, and
stand-ins for what can't be installed here: conda and apptainer."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

LMOD = Path("/usr/share/lmod/lmod/init/bash")

CONDA = """\
#!/bin/bash
# A stand-in for conda: its hook defines the shell function, whose `activate` knows the environments in ENVS.
cat << 'END'
conda() {
  [ "$1" = activate ] || return 2
  if [ ! -d "ENVS/$2" ]; then
    printf '\\nEnvironmentNameNotFound: Could not find conda environment: %s\\nYou can list all of them.\\n\\n' "$2" >&2
    return 1
  fi
  export CONDA_DEFAULT_ENV=$2 CONDA_PREFIX="ENVS/$2" PATH="ENVS/$2/bin:$PATH" UNSET=$NEVER_SET
}
END
"""
APPTAINER = """\
#!/bin/bash
# A stand-in for apptainer: `exec [options] IMAGE PROGRAM ...` notes how it was called and runs the program with the
# bin folder of the image, which is a folder here, first on PATH.
printf '%s\\n' "$@" > "IMAGES/told.$$"
[ "$1" = exec ] || exit 2
shift
while [[ $1 == -* ]]; do
  case $1 in --bind | --pwd) shift 2 ;; *) shift ;; esac
done
image=$1
shift
export PATH=$image/bin:$PATH INSIDE_IMAGE=$image
exec "$@"
"""


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    path.chmod(mode)
    return path


def toml_of(table: dict[str, Any]) -> str:
    """A profile; JSON's strings and lists are TOML's too."""
    values = [
        f"{key} = {json.dumps(value)}"
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    for key, inner in table.items():
        if isinstance(inner, dict):
            values += [
                f"[{key}]",
                *(f"{name} = {json.dumps(value)}" for name, value in inner.items()),
            ]
    return "\n".join(values) + "\n"


class Site:
    """Everything lies in one folder, whose name is not easy to write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "the site's own"
        self.modules, self.envs, self.images = (
            self.folder / "modules",
            self.folder / "envs",
            self.folder / "images",
        )
        self.images.mkdir(parents=True)
        self.envs.mkdir()
        for name in ("gcc", "cuda"):
            self.module(f"{name}/1.0.lua", f'prepend_path("LOADED", "{name}")\n')
        self.module("broken/1.0.lua", 'LmodError("the licence server\\ndoes not answer")\n')
        self.python_module(
            "python/3.7.4", "#%Module1.0\nprepend-path PATH {bin}\nprepend-path LOADED python\n"
        )

    @property
    def profile(self) -> dict[str, Any]:
        """The keys of a profile that lead here. Spaces and colons can't be in MODULEPATH, so there
        is a link."""
        link = self.folder.parent / "modulefiles"
        if not link.exists():
            link.symlink_to(self.modules)
        return {"module_init": str(LMOD), "module_use": [str(link)]}

    def module(self, name: str, text: str) -> None:
        write(self.modules / name, text)

    def python_module(self, name: str, text: str) -> None:
        """A module whose `python` says who it is, and is a real Python otherwise."""
        self.module(name, text.format(bin=self.python(self.folder.parent / "python")))

    def python(self, place: Path, says: str = "the module's") -> Path:
        """A folder with a program `python`."""
        text = f'#!/bin/bash\nexport WHOSE_PYTHON={says!r}\nexec {sys.executable} "$@"\n'
        return write(place / "bin" / "python", text, 0o755).parent

    def venv(self, name: str = "an env", rampup: bool = True) -> Path:
        """A real venv; with all that the Python of the tests has, or with nothing."""
        place = self.folder / name
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        if rampup:
            packages = [path for path in sys.path if path.endswith("site-packages")]
            [site] = (place / "lib").glob("python*/site-packages")
            own = Path(__file__).parents[1]
            (site / "others.pth").write_text("\n".join([str(own), *packages]) + "\n")
        return place

    def conda(self, bin_folder: Path, *names: str) -> None:
        write(bin_folder / "conda", CONDA.replace("ENVS", str(self.envs)), 0o755)
        for name in names:
            self.python(self.envs / name, says=f"conda {name}")

    def apptainer(
        self, bin_folder: Path, name: str = "an image.sif", program: str = "apptainer"
    ) -> Path:
        """The program, and an image with a Python of its own."""
        write(bin_folder / program, APPTAINER.replace("IMAGES", str(self.images)), 0o755)
        return self.python(self.images / name, says="the image's").parent

    def told(self) -> list[list[str]]:
        """How the stand-in for apptainer was called."""
        return [path.read_text().splitlines() for path in sorted(self.images.glob("told.*"))]
