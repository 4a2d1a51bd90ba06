# Other runs come first: their directories say whether they have completed. Slurm let this job begin when their jobs had
# ended, whatever the end, and a run may have been put into the queue again since.
refused=""
ask=0
if [ ! -d "$run_dir/attempts/1" ]; then  # it has not begun yet
  answer=$("$python" -I -S "$run_dir/after.py" "$run_dir" "$job")
  ask=$?
fi
case $ask in
  0) ;;
  @behind@)
    echo "$answer"
    exit 0
    ;;
  @never@) refused=$answer ;;
  *)
    echo "rampup: can't tell whether the runs before this one have completed" >&2
    exit 1
    ;;
esac
