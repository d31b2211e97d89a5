# shellcheck shell=bash
# Sourced by scripts/kvdiv and scripts/test, which set $root. `prepare PRESET TARGET [cuda]` brings a bare Debian 12 to a built
# TARGET, with the CUDA module if the preset is cuda or the word is given: packages, libtorch, configure, build. One line a stage on stderr, and only for stages with something to do;
# stdout is left to the program. The newest stage's output is in build/setup.log.
#
#   KVDIV_LIBTORCH=DIR   another libtorch 2.11.0 (with include/ and lib/); nothing is downloaded then
#   XDG_CACHE_HOME       the wheels are kept in $XDG_CACHE_HOME/kvdiv/wheels (default ~/.cache), for the next clone

# Debian packages by what shows that they are there: tools by their command (any cmake on the PATH will do) …
TOOLS=(g++:g++ cmake:cmake ninja-build:ninja ccache:ccache unzip:unzip python3:python3 python3-pip:pip3)
# … libraries by dpkg.
LIBRARIES=(libsentencepiece-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libssl-dev libboost-math-dev
           libhwy-dev libjs-chart.js libvalijson-dev libgtest-dev libgmock-dev libbenchmark-dev)

# Name, version, platform tag for pip, file, SHA-256. The last two hold what libtorch_cpu.so is linked against.
WHEELS=(
  "torch 2.11.0 manylinux_2_28_x86_64 torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"
  "nvidia-cuda-cupti 13.0.85 manylinux_2_25_x86_64 nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
  "nvidia-cuda-runtime 13.0.96 manylinux2014_x86_64 nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
)

build=${root:?}/build
log=$build/setup.log
libtorch=${KVDIV_LIBTORCH:-$build/libtorch-2.11.0}
gpu_torch=$(compgen -G "$build/gpu-env/lib/python3*/site-packages/torch" || true)  # left by scripts/get_gpu_torch
[[ -n ${KVDIV_LIBTORCH:-} || -z $gpu_torch ]] || libtorch=$gpu_torch
[[ $libtorch == /* ]] || libtorch=$PWD/$libtorch
cache_home=${XDG_CACHE_HOME:-${HOME:-$build}/.cache}
export CCACHE_BASEDIR=$root  # paths below the clone are hashed as relative ones: a second clone hits the same cache
[[ -n ${HOME:-} ]] || export CCACHE_DIR=${CCACHE_DIR:-$cache_home/ccache}

say() { printf 'kvdiv: %s\n' "$*" >&2; }

# A line, and a new log for what follows.
stage() {
  say "$*"
  : >"$log"
}

# Prints its lines and ends with 70; never used for what the program itself reports (0 to 5).
die() {
  say "$1"
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 70
}

show_log_tail() { tail -n "${1:-15}" "$log" 2>/dev/null | sed 's/^/  | /' >&2 || true; }

# ---- packages ------------------------------------------------------------------------------------------------------

missing_packages() {
  local entry installed package
  for entry in "${TOOLS[@]}"; do
    command -v "${entry#*:}" >/dev/null || echo "${entry%%:*}"
  done
  command -v dpkg-query >/dev/null || return 0  # another system: CMake says which library it lacks
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${LIBRARIES[@]}" 2>/dev/null || true)
  for package in "${LIBRARIES[@]}"; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed $package"$'\n'* ]] || echo "$package"
  done
}

# Packages are looked at again when this file or dpkg's state has changed.
package_state() { stat -c '%n %i %s %Y' "$root/scripts/lib/setup.sh" /var/lib/dpkg/status 2>/dev/null || true; }

ensure_packages() {
  local stamp=$build/.setup-stamp state missing
  state=$(package_state)
  [[ -f $stamp && $(<"$stamp") == "$state" ]] && return
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]})); then
    local line="apt-get install ${missing[*]}"
    command -v apt-get >/dev/null ||
      die "not a Debian system. Missing, by the names of Debian's packages:" "${missing[*]}"
    become_root ||
      die "packages are missing, and neither root nor sudo is to be had. Run this as root, then try again:" "$line"
    stage "installing ${#missing[@]} Debian packages: ${missing[*]}"
    install_packages "${missing[@]}" || {
      show_log_tail
      die "apt-get failed (whole output: $log). Needed:" "$line"
    }
    state=$(package_state)
  fi
  printf '%s\n' "$state" >"$stamp"
}

# What the tests of the HTML page look at it with. Not needed for anything else: without it they are skipped, and say so.
ensure_browser() {
  ! command -v chromium >/dev/null || return 0
  command -v apt-get >/dev/null && become_root || return 0
  stage "installing Debian's chromium and a font, for the tests of the page"
  install_packages chromium fonts-dejavu-core || say "chromium cannot be installed (whole output: $log): the tests of the page are skipped"
}

sudo=()

become_root() {
  ((EUID != 0)) || return 0
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [[ -t 2 ]] && sudo -v; }; } || return 1
  sudo=(sudo)
}

install_packages() { apt_get install "$@" || { apt_get update && apt_get install "$@"; }; }

apt_get() {
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    --no-install-recommends "$@" </dev/null >>"$log" 2>&1
}

# ---- libtorch ------------------------------------------------------------------------------------------------------

check_libtorch() {
  [[ -e $libtorch/lib/libtorch_cpu.so && -e $libtorch/lib/libc10.so && -d $libtorch/include/ATen ]] && return
  [[ -z ${KVDIV_LIBTORCH:-} ]] ||
    die "KVDIV_LIBTORCH=$KVDIV_LIBTORCH is no libtorch: expected lib/libtorch_cpu.so, lib/libc10.so and include/ATen in it" \
      "Unset it to have libtorch 2.11.0 unpacked here, or name another directory."
  [[ $(uname -sm) == "Linux x86_64" ]] ||
    die "libtorch 2.11.0 is fetched for Linux x86_64 only, this is $(uname -sm)" \
      "Set KVDIV_LIBTORCH to a directory with libtorch 2.11.0 (include/ and lib/) for this machine."
  return 1
}

# Leaves the verified wheels in $wheels.
fetch_wheels() {
  local entry
  wheels=$cache_home/kvdiv/wheels
  { mkdir -p "$wheels" 2>/dev/null && [[ -w $wheels ]]; } || { wheels=$build/wheels && mkdir -p "$wheels"; }
  for entry in "${WHEELS[@]}"; do
    # shellcheck disable=SC2086  # five words
    fetch_wheel $entry
  done
}

fetch_wheel() {
  local name=$1 version=$2 platform=$3 file=$4 expected=$5 found attempt
  for attempt in 1 2; do
    [[ -f $wheels/$file ]] || download_wheel "$name" "$version" "$platform" "$file" "$attempt"
    found=$(sha256sum "$wheels/$file")
    found=${found%% *}
    [[ $found == "$expected" ]] && return
    rm -f "$wheels/$file"
    say "corrupt wheel, removed: $wheels/$file"
    say "  SHA-256 expected $expected, found $found"
  done
  die "$name $version came with another SHA-256 twice. Expected:" "$file" "sha256 $expected" \
    "Put that file into $wheels, or set KVDIV_LIBTORCH."
}

download_wheel() {
  local name=$1 version=$2 platform=$3 file=$4 attempt=$5 part=$build/.wheel.part again=''
  ((attempt == 1)) || again=" again"
  stage "downloading $name $version$again"
  rm -rf "$part"
  # One wheel whatever Python runs pip; pip's own cache would keep a second copy.
  pip3 download --no-cache-dir --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
    --implementation cp --abi cp311 --platform "$platform" -d "$part" "$name==$version" </dev/null >>"$log" 2>&1 || true
  if [[ ! -f $part/$file ]]; then
    show_log_tail 5
    say "cannot download $name $version (whole output: $log)"
    die_without_wheels
  fi
  mv "$part/$file" "$wheels/$file"
  rm -rf "$part"
}

die_without_wheels() {
  local entry words lines=()
  for entry in "${WHEELS[@]}"; do
    read -ra words <<<"$entry"
    lines+=("${words[0]} ${words[1]}: ${words[3]}" "    sha256 ${words[4]}")
  done
  die "libtorch comes from three Python wheels. Put these files into $wheels:" "${lines[@]}" \
    "or set KVDIV_LIBTORCH to a directory with libtorch 2.11.0 (include/ and lib/)."
}

ensure_libtorch() {
  check_libtorch && return
  local wheels part=$build/.libtorch.part torch cupti runtime
  fetch_wheels
  stage "unpacking libtorch 2.11.0 into $libtorch"
  rm -rf "$part"
  mkdir -p "$part/licenses"
  read -r _ _ _ torch _ <<<"${WHEELS[0]}"
  read -r _ _ _ cupti _ <<<"${WHEELS[1]}"
  read -r _ _ _ runtime _ <<<"${WHEELS[2]}"
  {
    unzip -q "$wheels/$torch" torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1 \
      'torch/include/*' 'torch-*.dist-info/licenses/*' -d "$part" &&
      unzip -qj "$wheels/$cupti" nvidia/cu13/lib/libcupti.so.13 -d "$part/torch/lib" &&
      unzip -qj "$wheels/$runtime" nvidia/cu13/lib/libcudart.so.13 -d "$part/torch/lib" &&
      unzip -qjp "$wheels/$runtime" '*/licenses/License.txt' >"$part/licenses/cuda.txt" &&
      mv "$part"/torch-*.dist-info/licenses/LICENSE "$part/licenses/libtorch.txt" &&
      mv "$part"/torch-*.dist-info/licenses/NOTICE "$part/licenses/libtorch-notice.txt" &&
      mv "$part/licenses" "$part/torch/licenses" &&
      rm -rf "$libtorch" && mv -T "$part/torch" "$libtorch"
  } >>"$log" 2>&1 || {
    show_log_tail 5
    rm -rf "$part"
    die "cannot unpack the wheels of $wheels into $build (0.5 GB; is the disk full?)"
  }
  rm -rf "$part"
}

# The preset cuda: nvcc, and libtorch's CUDA half beside the other. What that needs in order to start (cuDNN, NCCL, NVSHMEM
# and more, 3 GB) is not needed to link: scripts/get_gpu_torch brings it to a machine with a GPU.
ensure_cuda() {
  command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] ||
    die "the preset cuda needs nvcc 13 (CUDA toolkit), on the PATH or in /usr/local/cuda/bin" \
      "Without it, kvdiv runs on the CPU: leave out --preset cuda."
  [[ -e $libtorch/lib/libtorch_cuda.so && -e $libtorch/lib/libc10_cuda.so ]] && return
  [[ -z ${KVDIV_LIBTORCH:-} ]] ||
    die "KVDIV_LIBTORCH=$KVDIV_LIBTORCH has no CUDA: expected lib/libtorch_cuda.so and lib/libc10_cuda.so in it" \
      "Name the folder torch/ of an installed package torch 2.11.0, or unset it."
  local wheels torch part=$build/.libtorch-cuda.part
  fetch_wheels
  read -r _ _ _ torch _ <<<"${WHEELS[0]}"
  stage "unpacking the CUDA half of libtorch 2.11.0 into $libtorch"
  rm -rf "$part"
  {
    unzip -qj "$wheels/$torch" torch/lib/libtorch_cuda.so torch/lib/libc10_cuda.so -d "$part" &&
      mv "$part"/*.so "$libtorch/lib/"
  } >>"$log" 2>&1 || {
    show_log_tail 5
    rm -rf "$part"
    die "cannot unpack $wheels/$torch into $libtorch (0.5 GB; is the disk full?)"
  }
  rm -rf "$part"
}

# ---- configure and build -------------------------------------------------------------------------------------------

# Ninja runs CMake again by itself when a CMake file or the set of sources has changed; this is for a first time, a
# clone that was moved, and another KVDIV_LIBTORCH.
ensure_configured() {
  local preset=$1 tree=$build/$1 cache='' fresh=() options=()
  [[ ${2:-} != cuda ]] || options=(-DKVDIV_CUDA=ON)
  [[ ! -f $tree/CMakeCache.txt ]] || cache=$(<"$tree/CMakeCache.txt")
  if [[ $cache == *$'\n'"CMAKE_HOME_DIRECTORY:INTERNAL=$root"$'\n'* &&
    $cache == *$'\n'"KVDIV_LIBTORCH:PATH=$libtorch"$'\n'* && -f $tree/build.ninja ]]; then
    [[ ${2:-} == cuda && $cache != *$'\n'"KVDIV_CUDA:BOOL=ON"$'\n'* ]] || return 0
    cache=''  # as it is, and the module with it
  fi
  [[ -z $cache ]] || fresh=(--fresh)
  say "configuring $tree"
  (cd "$root" && cmake "${fresh[@]}" --preset "$preset" -DKVDIV_LIBTORCH="$libtorch" "${options[@]}") </dev/null >"$build/configure.log" 2>&1 || {
    sed -n '/^CMake Error/,$p' "$build/configure.log" >&2
    die "CMake failed (whole output: $build/configure.log). By the names of Debian's packages, kvdiv needs:" \
      "${TOOLS[*]%%:*} ${LIBRARIES[*]}"
  }
}

# A file that includes ATen takes about 2 GB to compile.
n_jobs() {
  local cores by_memory key kb limit
  cores=$(nproc)
  while read -r key kb _; do
    [[ $key != MemAvailable: ]] || break
  done </proc/meminfo
  if read -r limit 2>/dev/null </sys/fs/cgroup/memory.max && [[ $limit =~ ^[0-9]+$ ]] && ((limit / 1024 < kb)); then
    kb=$((limit / 1024))
  fi
  by_memory=$((kb / 2000000))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# Ninja's progress becomes one line (renewed on a terminal); what compilers and CMake complain about passes through.
show_build() {
  local line announced='' pattern='^\[[0-9]+/([0-9]+)\] '
  while IFS= read -r line; do
    if [[ $line =~ $pattern ]]; then
      if [[ $line == *"Re-checking globbed"* || $line == *"Re-running CMake"* || $line == *GitCommit.cmake* ]]; then continue; fi
      [[ -n $announced ]] || say "building $1 (${BASH_REMATCH[1]} steps, $2 at a time)"
      announced=yes
      [[ ! -t 2 ]] || printf '\r\e[K%.*s' "${COLUMNS:-80}" "$line" >&2
    elif [[ $line != ninja:\ Entering* && $line != ninja:\ no\ work* && $line != --\ * && -n $line ]]; then
      [[ ! -t 2 || -z $announced ]] || printf '\r\e[K' >&2
      printf '%s\n' "$line" >&2
    fi
  done
  [[ ! -t 2 || -z $announced ]] || printf '\r\e[K' >&2
}

build_target() {
  local tree=$build/$1 target=$2 jobs
  jobs=$(n_jobs)
  ninja -C "$tree" -j "$jobs" "$target" </dev/null 2>&1 | show_build "$target" "$jobs" ||
    die "the build of '$target' in $tree failed; the compiler's words are above"
}

prepare() {
  local lock
  { mkdir -p "$build" && : >>"$build/.lock"; } || die "cannot write to $build"
  exec {lock}>"$build/.lock"
  flock -n "$lock" 2>/dev/null || {
    say "waiting for another setup or build in $build"
    flock "$lock"
  }
  ensure_packages
  ensure_libtorch
  [[ $1 != cuda && ${3:-} != cuda ]] || ensure_cuda
  ensure_configured "$1" "${3:-}"
  build_target "$1" "$2"
  exec {lock}>&-
}
