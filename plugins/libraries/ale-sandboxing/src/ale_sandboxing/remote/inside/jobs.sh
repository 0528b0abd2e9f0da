# Runs in the sandbox, under any POSIX shell: `sh jobs.sh ACTION FORGET ARGUMENT...`.
#
# A job is a command, a shell of a session, or one command in such a shell. It has a folder of its
# own, named by a token that the client chose, and is run by a supervisor that no connection ends.
# So every action may be called again after a lost connection: `mkdir` lets only the first call
# start the job, and the others wait for its result. FORGET names jobs whose results have arrived.
#
# Output goes through a named pipe to a `drain`, which keeps the beginning and the latest parts in
# files, so that no amount of it fills the disk. A mark, written into the pipe after the command's
# end, shows what was written before it; a background job may hold the pipe open for ever.
#
# Everything here has the variable ALE_KEEP, which the sandbox was created with; the commands have
# not, and ALE_JOB instead. What ran before this script came is in the file `before`.

root=${0%/*}
inline=65536
patience=40 # seconds that one call waits
setsid=$(command -v setsid)
newline='
'
action=$1 forget=$2
shift 2
for old in $forget; do rm -rf "$root/$old"*; done

# ---- output

drain() { # STREAM: o or e
  exec 5<"$job/$1"
  part=head
  while :; do
    # "FULL+PARTIAL records in": fewer than were asked for is the end of file.
    said=$( { dd bs=65536 count=16 <&5 >>"$job/$1.$part"; } 2>&1) || exec cat <&5 # forgotten
    records=${said%% records in*}
    records=${records##*"$newline"} # after the warnings of some
    [ $((${records%+*} + ${records#*+})) -lt 16 ] && break
    [ "$(wc -c <"$job/$1.$part")" -lt "$limit" ] && continue
    if grep -qF "$mark" "$job/$1.$part"; then
      : >"$job/$1.end"
      exec cat <&5
    fi
    case $part in a) part=b ;; *) part=a ;; esac
    echo "$part" >"$job/$1.last"
    : >"$job/$1.$part"
  done
  : >"$job/$1.end"
}

open_streams() {
  mkfifo "$job/o" "$job/e"
  drain o >/dev/null 2>&1 &
  drain e >/dev/null 2>&1 &
  exec 3>"$job/o" 4>"$job/e"
}

drained() { # STREAM
  [ -f "$job/$1.end" ] && return
  # Once in a while: it ends by itself, unless something in the background holds it open.
  [ $((passes % 10)) -eq 9 ] && grep -qF "$mark" "$job/$1".[hab]* && : >"$job/$1.end"
}

close_streams() {
  echo "$mark" >&3
  echo "$mark" >&4
  exec 3>&- 4>&-
  passes=0
  until drained o && drained e; do
    # Again now and then: a mark may be cut in two where one part ends and the next begins.
    [ $((passes % 40)) -eq 39 ] && for stream in o e; do
      [ -f "$job/$stream.end" ] || echo "$mark" 1<>"$job/$stream"
    done
    passes=$((passes + 1))
    sleep 0.01
  done
}

whole() { # STREAM: sets $file to the file with its parts in order
  file=$job/$1.head
  [ -f "$job/$1.last" ] || return
  read -r part <"$job/$1.last"
  file=$job/$1.all
  case $part in a) set -- "$1" b a ;; *) set -- "$1" a b ;; esac
  # There may be no part b yet.
  cat "$job/$1.head" "$job/$1.$2" "$job/$1.$3" >"$file" 2>/dev/null
}

# ---- jobs

ends_with() { # CODE [ended]: the result, all at once; wakes those who wait for it
  echo "$*" >"$job/new"
  mv "$job/new" "$job/code"
  for waiting in "$job"/w.*; do kill "${waiting##*.}"; done 2>/dev/null
}

claim() { mkdir "$job/go" 2>/dev/null; }

supervise() { # TOKEN LIMIT MARK CWD STDIN ARGUMENT...
  token=$1 job=$root/$1 limit=$2 mark=$3 cwd=$4 stdin=$5
  shift 5
  claim || exit
  open_streams
  become "$@" <"$stdin" >&3 2>&4 3>&- 4>&-
  code=$?
  close_streams
  ends_with "$code"
}

become() {
  (
    ALE_JOB=$token
    export ALE_JOB
    unset ALE_KEEP
    cd -- "$cwd" || exit 126
    unset OLDPWD
    exec $setsid /bin/sh -c 'echo $$ >"$0/pid"; exec "$@"' "$job" "$@"
  )
}

supervise_shell() { # TOKEN CWD ARGUMENT...
  token=$1 job=$root/$1 cwd=$2
  shift 2
  claim || exit
  mkfifo "$job/in"
  exec 6<>"$job/in"
  become "$@" <"$job/in" 6>&-
  code=$?
  ends_with "$code"
  step=$(cat "$job/step" 2>/dev/null) && echo "ended $code" 1<>"$root/$step/r"
}

supervise_step() { # TOKEN LIMIT MARK SESSION FRAME
  job=$root/$1 limit=$2 mark=$3 shell=$root/$4
  claim || exit
  open_streams
  mkfifo "$job/r"
  exec 7<>"$job/r"
  echo "$1" >"$shell/step.new"
  mv "$shell/step.new" "$shell/step"
  if [ -f "$shell/code" ]; then
    a=ended b=$(cat "$shell/code")
  else
    # In the background: a shell that ends meanwhile reads no more of it.
    case $5 in
      @*) cat "${5#@}" 1<>"$shell/in" & ;;
      *) printf '%s\n' "$5" 1<>"$shell/in" & ;;
    esac
    writer=$!
    until read -r a b <&7 && { [ "$a" = ended ] || [ "$b" = "$1" ]; }; do :; done
    kill -9 "$writer"
  fi
  rm -f "$shell/step"
  close_streams
  case $a in ended) ends_with "$b" ended ;; *) ends_with "$a" ;; esac
}

# ---- answers

report() {
  whole o
  out=$file
  whole e
  wc -c "$out" "$file" 2>/dev/null | {
    read -r n_out _
    read -r n_err _
    read -r code ended <"$job/code"
    echo "done $code ${ended:-open} $n_out $n_err ${out##*/} ${file##*/}"
    [ $((n_out + n_err)) -le $inline ] && cat "$out" "$file"
  }
}

leave() { # STATE: end this call at once; a supervisor in the same pipeline goes on
  echo "$1"
  kill -9 $$
  exit
}

give_up() {
  # What its first call could not start is never started: nobody knows whether that call lives.
  claim && leave lost
  leave running
}

await_end() {
  sleep $patience >/dev/null 2>&1 &
  timer=$!
  : >"$job/w.$timer"
  [ -f "$job/code" ] || wait "$timer" 2>/dev/null
  rm -f "$job/w.$timer"
  [ -f "$job/code" ] || give_up
  kill "$timer" 2>/dev/null
  report
}

await_shell() {
  naps=0
  until [ -f "$job/code" ] || [ -s "$job/pid" ]; do
    sleep 0.01
    naps=$((naps + 1))
    [ $naps -lt $((patience * 50)) ] || give_up
  done
  if [ -f "$job/code" ]; then leave "ended $(cat "$job/code")"; else leave ready; fi
}

# In the foreground, because whatever starts in the background of a shell ignores SIGINT.
start() { # AWAIT ARGUMENT...
  await=$1
  shift
  if mkdir "$job" 2>/dev/null; then
    $setsid /bin/sh "$0" "$@" </dev/null >/dev/null 2>&1 | $await
  else
    $await
  fi
}

# ---- processes

marked() { # PROCESS NAME=VALUE
  tr '\0' '\n' <"/proc/$1/environ" | grep -qxF "$2"
}

chosen() { # PROCESS
  [ "$1" != 1 ] && [ "$1" != $$ ] || return 1
  state=
  read -r state <"/proc/$1/stat"
  case ${state##*) } in '' | [ZX]*) return 1 ;; esac
  if [ -n "$token" ]; then marked "$1" "ALE_JOB=$token"; return; fi
  ! marked "$1" "ALE_KEEP=$ALE_KEEP" && ! older "$1" ${state##*) }
}

older() { # PROCESS STATE PARENT ...: did it run before? A kernel thread did, whenever it started.
  case $before in *" $1.${21} "* | *" kernel.$3 "*) return 0 ;; esac
  return 1
}

sweep() { # kills the processes of $token, or of all jobs
  killed=0 seen=' ' passes=0 left=1
  while [ $left -gt 0 ] && [ $passes -lt 1000 ]; do
    left=0 passes=$((passes + 1))
    for process in /proc/[0-9]*; do
      process=${process#/proc/}
      chosen "$process" && kill -9 "$process" || continue
      left=$((left + 1))
      case $seen in *" $process "*) ;; *) seen="$seen$process " killed=$((killed + 1)) ;; esac
    done
  done
} 2>/dev/null

end_job() {
  mkdir "$job" 2>/dev/null
  if claim; then
    : >"$job/o.head"
    : >"$job/e.head"
    ends_with 137 ended
  fi
  until [ -f "$job/code" ]; do
    leader=$(cat "$job/pid" 2>/dev/null)
    [ -n "$setsid" ] && [ -n "$leader" ] && kill -9 -- "-$leader" 2>/dev/null
    sweep
    sleep 0.02
  done
  sweep # what its end has left in the background
}

# ---- files

look() { # PATH: its kind, and what is in it where that is little
  if [ -d "$1" ]; then
    echo folder
  elif [ -f "$1" ] && [ -r "$1" ]; then
    n=$(wc -c <"$1")
    echo "file" $n
    [ $((n)) -gt 0 ] && [ $((n)) -le $inline ] && cat "$1"
  elif [ -e "$1" ]; then
    echo special
  else
    echo missing
  fi
}

place() { # SCRATCH PATH MODE: joins the parts SCRATCH.* to a file
  if [ -d "$2" ]; then echo folder; exit; fi
  case $2 in */ | */.) [ -e "${2%/*}" ] && echo special || echo folder; exit ;; esac
  if [ -e "$2" ] && [ ! -f "$2" ]; then echo special; exit; fi
  mkdir -p -- "${2%/*}/" && cat "$1".* >"$2" && { [ -z "$3" ] || chmod "$3" "$2"; } &&
    echo placed || echo refused
}

pack() { # PATH SCRATCH MOST: MOST is the number of bytes of a file that is too large
  path=$(readlink -f -- "$1") && [ -e "$path" ] || { echo missing; exit; }
  [ -z "$(find "$path" -type f -size "+$3c" 2>/dev/null | head -n 1)" ] || { echo large; exit; }
  tar -cf "$2" -C "$(dirname -- "$path")" -- "$(basename -- "$path")" || { echo refused; exit; }
  echo "packed" $(wc -c <"$2")
}

unpack() { # SCRATCH FOLDER
  mkdir -p -- "$2" && cat "$1".* | tar -xpf - -C "$2" && echo unpacked || echo refused
}

case $action in
  supervise | supervise_shell | supervise_step) "$action" "$@" ;;
  run) job=$root/$1; start await_end supervise "" "$@" ;;
  shell) job=$root/$1; start await_shell supervise_shell "" "$@" ;;
  step) job=$root/$1; start await_end supervise_step "" "$@" ;;
  end) token=$1 job=$root/$1; end_job; echo ended ;;
  end_all) token= before=$(cat "$root/before"); sweep; echo "killed $killed" ;;
  part) dd if="$1" of="$2" bs="$3" skip="$4" count=1 2>/dev/null && echo part ;;
  look | place | pack | unpack) "$action" "$@" ;;
esac
