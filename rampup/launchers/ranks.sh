#@put comment
#@if becomes
# rank.py needs only the standard library (-I -S) and becomes the program of the run: no shell is left in between that
# a signal could hit.
#@else
# rank.py needs only the standard library (-I -S) and stays the parent of the program: one that exits with code 85
# asks for a restart, which must not look like a failure.
#@end
for try in @tries@; do
  rm -f "$attempt_dir/port-taken"
  if [ -n "$stopped" ]; then break; fi
  @command@ \
    "$python" -I -S "$run_dir/rank.py" "$run_dir" --attempt="$attempt" --port-retry="$try" --cpus=@cpus@ \
    --master-addr="$master" --hosts="${hosts//$'\n'/,}" --started="$started" --run-hash="$run_hash" \
    --stop-at="$stop_at"@options@ &
  step=$!
  while :; do  # a trapped signal ends `wait`, not what it waits for
    wait "$step"
    code=$?
    kill -0 "$step" 2> /dev/null || break
  done
  [ -e "$attempt_dir/port-taken" ] || break  # another program on the node has our ports: take the next block
done
