asked=      # the signal by which the run was asked to end
lost=$logs/.lost
rm -f "$lost"
others=()

# Where rank 0 is a process of this node, it gets the signal: torchrun would kill it 30 s later.
ask() {
  asked=$1
  local target
  target=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$rank_0" 2>/dev/null)
  kill "-$1" "${target:-$child}" 2>/dev/null
}
trap 'ask TERM' TERM
trap 'ask INT' INT
trap 'again=1; ask TERM' USR1   # the time limit is near
again=

address_of_this_node() {
  scontrol show node "$SLURMD_NODENAME" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p'
}

# PROCESS: sets status once it has ended; a trapped signal ends bash's own wait.
await() {
  while :; do
    wait "$1"
    status=$?
    kill -0 "$1" 2>/dev/null || break
  done
}

# NAME COMMAND...: in the background; what is lost is started again, or ends the run.
beside() {
  watch "$@" &
  others+=($!)
}
watch() {
  local name=$1 left=$restarts status step ending=
  shift
  # A second SIGTERM is for srun, which then kills the step.
  trap '[ $ending ] && kill "$step" 2>/dev/null; ending=1' TERM
  while :; do
    "$@" &
    step=$!
    await "$step"
    [ $ending ] || [ $status -eq 0 ] && return
    if [ $left -eq 0 ]; then
      echo "$name ended with status $status: the run is ended"
      touch "$lost"
      kill -TERM $$
      return
    fi
    echo "$name ended with status $status: started again ($left left)"
    left=$((left - 1))
    sleep 1
  done
}

# COMMAND...: until it ends for good. Above 128: a signal killed it.
run() {
  local left=$restarts
  while :; do
    rm -f "$rank_0"
    "$@" >>"$logs/run.log" 2>&1 &
    child=$!
    await "$child"
    [ $ranks_by_torchrun ] && status=$(status_by_torchrun $status)
    [ -n "$asked" ] && break
    [ "$status" -le 128 ] && [ "$status" -ne "$status_to_start_again" ] && break
    if [ $left -eq 0 ]; then
      echo "the run ended with status $status"
      touch "$lost"
      break
    fi
    echo "the run ended with status $status: started again ($left left)"
    left=$((left - 1))
    sleep 1
    [ -n "$asked" ] && break   # in the pause
  done
}
# Torchrun ends with 0 when rank 0 has come to an end, and says that in its file; else with 1.
status_by_torchrun() {
  local found
  found=$(sed -n 's/.*"status": \([0-9]*\).*/\1/p' "$rank_0" 2>/dev/null)
  [ "$1" -eq 0 ] && echo "${found:-0}" || echo 137
}

finish() {
  local ended_with=$status
  if [ ${#others[@]} -gt 0 ]; then
    kill "${others[@]}" 2>/dev/null
    scancel --quiet --signal=TERM "$SLURM_JOB_ID"
    { sleep "$grace_s"; kill "${others[@]}" 2>/dev/null; } &
    local patience=$! other
    for other in "${others[@]}"; do await "$other"; done
    kill $patience 2>/dev/null
  fi
  [ -e "$lost" ] && exit "$status_of_lost"
  if [ $again ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts" ]; then
    echo "requeued before the time limit, to be resumed"
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
  fi
  exit "$ended_with"
}

if [ "${SLURM_RESTART_COUNT:-0}" -gt "$restarts" ]; then
  echo "requeued more than $restarts times"
  exit "$status_of_lost"
fi
