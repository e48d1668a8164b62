#!/usr/bin/env bash
# Builds the course's Python environment, or does nothing when it is there and current.
#
#     bash etc/setup.sh VENV [EXTRAS]       called by make: VENV is a folder, EXTRAS as in pyproject.toml: "test,models"
#
# The versions are those of constraints.txt. What was installed is remembered in VENV/.installed*, by content:
# a newer requirement installs again, a newer file date does not. An install that was cut short goes on.
#
# Linux without an NVIDIA GPU takes PyTorch's build for the CPU, which is a sixth of the size. PYTORCH=cpu or
# PYTORCH=cuda says which, where none is installed yet; a PyTorch of the right version is kept.
set -euo pipefail
venv=${1:?"which folder?"} extra=${2:-}
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$@" >&2; }
stop() { say "" "make: $1"; shift; for line in "$@"; do say "  $line"; done; exit 1; }
# Bash waits for the program that Ctrl-C ends, then comes here: what that program failed at is not to blame.
trap 'say "" "make: stopped. The same command goes on where it was."; exit 130' INT

python=$venv/bin/python
stamp=$venv/.installed${extra:+-$extra}

# The folder's place counts: an environment that was moved holds commands that point to where it was.
place() { (cd "$venv" && pwd -P); }
wanted() { place && cat pyproject.toml constraints.txt etc/triton.txt; }
if [ -f "$stamp" ] && [ -x "$python" ] && wanted | cmp -s - "$stamp"; then exit 0; fi

nvidia() { compgen -G "/dev/nvidia*" || command -v nvidia-smi || ls /usr/lib/wsl/lib/nvidia-smi; } >/dev/null 2>&1
case ${PYTORCH:-} in
cpu | cuda) build=$PYTORCH ;;
'') if [ "$(uname)" = Linux ] && ! nvidia; then build=cpu; else build=cuda; fi ;; # cuda: what pip takes by itself
*) stop "PYTORCH=$PYTORCH is neither cpu nor cuda." ;;
esac

recent='import sys; sys.exit(sys.version_info < (3, 11))'
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if "$candidate" -c "$recent" 2>/dev/null; then echo "$candidate"; return; fi
        if [ "$candidate" = "${PYTHON:-}" ]; then return 1; fi
    done
    return 1
}

for part in ${extra//,/ }; do
    grep -q "^$part = \[" pyproject.toml || stop "there is no extra named '$part'." \
        "There are: $(sed -n '/^\[project.optional-dependencies\]/,/^\[tool/ s/^\([a-z]*\) = \[$/\1/p' pyproject.toml | tr '\n' ' ')"
done
began=$SECONDS
for earlier in "$venv"/.installed*; do
    if [ -f "$earlier" ] && [ "$(head -n 1 "$earlier")" != "$(place)" ]; then
        say "This folder was moved: its environment is made anew."
        rm -rf "$venv"
    fi
done
if ! [ -x "$python" ] || ! "$python" -m pip --version >/dev/null 2>&1; then
    base=$(find_python) || stop "Python 3.11 or newer is needed." \
        "Found: ${PYTHON:-python3} is $(command -v "${PYTHON:-python3}" >/dev/null && "${PYTHON:-python3}" --version 2>&1 || echo 'not there')." \
        "Install a newer one, or say which: make lab PYTHON=/path/to/python3.12"
    "$base" -c 'import venv, ensurepip' 2>/dev/null || stop "this Python cannot make environments (its venv module is missing)." \
        "On Debian and Ubuntu: apt install python3-venv     on Fedora it is part of python3"
    say "Making the environment $venv with $("$base" --version) …"
    "$base" -m venv "$venv" || stop "the environment could not be made; the lines above say why."
fi
if ! command -v "${CXX:-c++}" >/dev/null && ! command -v g++ >/dev/null && ! command -v clang++ >/dev/null; then
    say "Note: no C++ compiler found. All is well until a lesson compiles a kernel (torch.compile)." \
        "      On Debian and Ubuntu: apt install g++     on a Mac: xcode-select --install"
fi

case $(place) in
*[[:space:]\'\"\\]*)
    say "Note: this folder's path, $(place), holds a space, a quote or a backslash. PyTorch's compiler" \
        "      cannot build its kernels there (lesson 11 says so where it wants to); all else works. To have that too:" \
        "      move the course, or make the environment elsewhere: make lab VENV=/path/without/spaces" ;;
esac

# pip's own lines go to a log; a person sees one line that changes, a log file sees none.
log=$venv/install.log
: >"$log"
pip() {
    local line went=0
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip "$@" 2>&1 | while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        if [ -t 2 ]; then printf '\r\033[K  %3d s  %.90s' $((SECONDS - began)) "${line#"${line%%[! ]*}"}" >&2; fi
    done || went=1 # pip's own status, by pipefail: what follows must not hide it
    if [ -t 2 ]; then printf '\r\033[K' >&2; fi
    return $went
}
# Python compiles what it imports, once, where it may write. The tests import a third of what they install.
case ,$extra, in *,test,*) compiled=--no-compile ;; *) compiled=--compile ;; esac
say "Installing the course${extra:+ with its extras $extra} (PyTorch, JupyterLab, nbgrader …). A few minutes, the first time only."
# Triton beside PyTorch's build for the CPU; a build for CUDA brings its own.
without_cuda='
import os, runpy, sys
from importlib.util import find_spec
torch = find_spec("torch")
sys.exit(torch is None or runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py"))["cuda"] is not None)
'
triton_pin() {
    case ,$extra, in *,kernels,*)
        # (PyTorch stands here without what it needs, so that it cannot be imported yet.)
        if "$python" -c "$without_cuda"; then echo "-c etc/triton.txt"; fi ;;
    esac
}
# The build tool first and from here, so that pip fetches no other version of it behind the scenes. Then PyTorch alone:
# where its own index does not answer, pip is to go on without it soon, and takes nothing else from there.
if ! pip install $compiled "setuptools" -c constraints.txt ||
    { [ $build = cpu ] && ! pip install $compiled --no-deps --timeout 10 --retries 1 -r etc/pytorch-cpu.txt torch -c constraints.txt; } ||
    ! pip install $compiled --no-build-isolation -c constraints.txt $(triton_pin) -e ".${extra:+[$extra]}"; then
    tail -n 15 "$log" | sed 's/^/  | /' >&2
    stop "pip could not finish; its last lines are above, all of them in $log." \
        "Often it is the network or the disk. Run the same command again: it goes on where it stopped."
fi
installed='
import os, sys, torch, helpers
packages = os.path.dirname(os.path.dirname(torch.__file__))
size = sum(
    os.lstat(os.path.join(folder, name)).st_size
    for top in ("torch", "nvidia", "triton")
    for folder, _, names in os.walk(os.path.join(packages, top))
    for name in names
)
build = "build with CUDA, " if torch.version.cuda else "CPU build, " if sys.platform == "linux" else ""
print("PyTorch {}, {}{:.1f} GB".format(torch.__version__.partition("+")[0], build, size / 1e9))
'
pytorch=$("$python" -c "$installed") || stop "the environment was installed but does not work; the lines above say why." \
    "To start afresh: make clean-all, then the same command again."
wanted >"$stamp"
if [ -n "$extra" ]; then # who has more has the rest, too
    wanted >"$venv/.installed"
    for part in ${extra//,/ }; do wanted >"$venv/.installed-$part"; done
fi
case $build:$pytorch in
cpu:*"with CUDA"*)
    if grep -q "^Requirement already satisfied: torch in" "$log"; then reason="It was here and is kept."
    else reason="PyTorch's index of CPU builds could not be reached, or lacks this version; pip took this one."; fi
    pytorch="$pytorch. $reason The course runs with it as well." ;;
esac
say "$pytorch" "Ready after $((SECONDS - began)) s."
