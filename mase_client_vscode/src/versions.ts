/** Chooses between two servers: the one installed beside the user's models, and the one in the extension. */

/**
 * A `mase-server` installed in an interpreter. `source`: a checkout under development (an editable install, or a path).
 * `complete`: the packages that the server needs are installed, too.
 */
export interface Installed {
  version: string;
  source: boolean;
  complete: boolean;
}

/** Prints, as JSON, which server this interpreter has; fails without one. */
export const TELL_INSTALLED = `
import json
from importlib import metadata, util
import mase_server
try:
    address = json.loads(metadata.distribution("mase-server").read_text("direct_url.json") or "{}")
    source = bool(address.get("dir_info", {}).get("editable"))
except metadata.PackageNotFoundError:
    source = True
complete = all(map(util.find_spec, ("lsprotocol", "msgpack", "platformdirs", "pygls", "watchdog")))
print(json.dumps({"version": mase_server.__version__, "source": source, "complete": complete}))
`;

/** Why the extension's server is used instead; undefined for the user's own checkout, and for a release that is as new. */
export function objection(installed: Installed, brought: string): string | undefined {
  if (!installed.source && compare(installed.version, brought) < 0) return `newer than the installed ${installed.version}`;
  return installed.complete ? undefined : `because packages are missing beside the installed ${installed.version}`;
}

/** Negative if `a` is older than `b`. Only releases are compared: 0.2.0rc1 counts as 0.2.0. */
export function compare(a: string, b: string): number {
  const [left, right] = [release(a), release(b)];
  const places = Array.from({ length: Math.max(left.length, right.length) }, (_, place) => place);
  return places.map((place) => (left[place] ?? 0) - (right[place] ?? 0)).find((difference) => difference !== 0) ?? 0;
}

function release(version: string): number[] {
  return (/^\d+(\.\d+)*/.exec(version)?.[0] ?? '').split('.').map(Number);
}

/** The version in the text of a server's `__init__.py`. */
export function versionIn(text: string): string {
  return /^__version__ = "(.*)"$/m.exec(text)?.[1] ?? '';
}
