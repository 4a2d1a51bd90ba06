#@if prepares
# The environment of the ranks: modules, then venv or conda, then variables. The first two run foreign scripts: -u
# would break them, and old versions of `module` exit with 0 when they fail, so check what was loaded too.
set +u
words=$attempt_dir/.words
said() {  # the first paragraph that the last command printed
  local line all=""
  while read -r line || [ -n "$line" ]; do
    if [ -z "$line" ] && [ -n "$all" ]; then break; fi
    all+=${line:+ $line}
  done < "$words"
  echo "${all:- it gave no reason}"
}
#@if module_init
# shellcheck disable=SC1090,SC1091
command -v module > /dev/null || . @module_init@ > "$words" 2>&1
#@end
#@if modules
if ! command -v module > /dev/null; then
  not_ready "there is no command module on $host: a login shell does not define it, nor the profile's module_init"
fi
call_module() {
  local before=${LOADEDMODULES:-} ended
  module "$@" > "$words" 2>&1
  ended=$?
  if [ "$1" = load ] && [ "$before" = "${LOADEDMODULES:-}" ] && [[ :$before: != *:"$2"[:/]* ]]; then ended=1; fi
  [ "$ended" -eq 0 ] || [ "$1" = purge ] || not_ready "module $* failed on $host:$(said)"
  [ ! -s "$words" ] || cat "$words"
}
#@put module_calls
printf '%s\n' "${LOADEDMODULES//:/$'\n'}" > "$attempt_dir/modules.txt"
#@end
#@if venv
environment=@venv@
if [ ! -r "$environment/bin/activate" ]; then
  not_ready "environment $environment can't be read on $host: it has no bin/activate there"
fi
# shellcheck disable=SC1091
. "$environment/bin/activate" > "$words" 2>&1
found=$(command -v python)
if ! [ "${found%/*}" -ef "$environment/bin" ]; then
  not_ready "environment $environment can't be used on $host, python is then ${found:-not found}:$(said)"
fi
#@end
#@if conda
environment=@conda@
conda=$(command -v conda) || conda=${CONDA_EXE:-}
if [ -z "$conda" ]; then not_ready "environment conda:$environment: there is no conda on $host"; fi
eval "$("$conda" shell.bash hook)"
if ! conda activate "$environment" > "$words" 2>&1; then
  not_ready "environment conda:$environment can't be activated on $host:$(said)"
fi
#@end
rm -f "$words"
set +e -uo pipefail
#@end
#@if container
environment=@container@
if [ ! -e "$environment" ]; then not_ready "environment container:$environment is not there on $host"; fi
RAMPUP_CONTAINER=$(command -v apptainer || command -v singularity) ||
  not_ready "environment container:$environment: there is neither apptainer nor singularity on $host"
export RAMPUP_CONTAINER
#@end
#@put exports
