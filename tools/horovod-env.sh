#!/usr/bin/env bash
# An environment with the real Horovod, which needs a TensorFlow of its own: `make horovod-env`.
#
# The last Horovod (0.28.1) builds with TensorFlow 2.15, not with newer ones, and that takes minutes. So the wheel is
# kept in a cache directory named by the versions, and a second call takes a minute. pip's own cache would not do: it
# knows a wheel by its name alone, and would hand out one that was built for another TensorFlow. Into the cache comes
# only a wheel that is whole: a build that was interrupted must not be found there ever after.
set -euo pipefail

tensorflow=2.15.1
horovod=0.28.1
python=${1:?usage: tools/horovod-env.sh PYTHON VENV}
venv=${2:?usage: tools/horovod-env.sh PYTHON VENV}
rampup=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rampup/horovod/tensorflow-$tensorflow-py$("$python" -c 'import sys; print("%d%d" % sys.version_info[:2])')
pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check)

built() { compgen -G "$cache/horovod-$horovod-*.whl" > /dev/null; }

needed=(mpirun)
built || needed+=(mpicxx cmake g++)
for program in "${needed[@]}"; do
  if ! command -v "$program" > /dev/null; then
    echo "error: $program is missing: Horovod is built from source" >&2
    echo "hint: apt-get install openmpi-bin libopenmpi-dev cmake g++" >&2
    exit 1
  fi
done
"$python" -m venv "$venv"
"${pip[@]}" install "tensorflow-cpu==$tensorflow" 'setuptools<70' packaging wheel cffi psutil pyyaml cloudpickle
if ! built; then
  mkdir -p "$cache"
  # MPI alone: our launchers start ranks of MPI, and Gloo, the other way, is a third of the work.
  fresh=$(mktemp -d "$cache/.building-XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 \
    "${pip[@]}" wheel --no-build-isolation --no-cache-dir --no-deps --wheel-dir "$fresh" "horovod==$horovod"
  mv "$fresh"/horovod-"$horovod"-*.whl "$cache"
fi
"${pip[@]}" install --no-deps "$cache"/horovod-"$horovod"-*.whl
"${pip[@]}" install --no-deps "tf-keras==${tensorflow%.*}.*"  # it asks for tensorflow, and tensorflow-cpu is as good
# By a path and not by `pip install -e`, which would write into the project while another environment is being made.
mapfile -t needs < <("$python" -c 'import sys, tomllib; print(*tomllib.load(open(sys.argv[1], "rb"))["project"]["dependencies"], sep="\n")' "$rampup/pyproject.toml")
"${pip[@]}" install "${needs[@]}" scikit-learn
echo "$rampup" > "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rampup.pth"
TF_CPP_MIN_LOG_LEVEL=2 "$venv/bin/python" -c 'import horovod.tensorflow.keras as hvd; assert hvd.mpi_built()'
touch "$venv/.ready"
