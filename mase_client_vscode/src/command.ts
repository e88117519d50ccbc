/** Which command starts the server. */
import { execFile } from 'node:child_process';
import * as os from 'node:os';
import { workspace } from 'vscode';
import { candidates } from './environments/candidates';
import { Interpreters } from './environments/interpreters';
import { serverCommand } from './settings';

/** -P: a `torch.py` or `typing.py` in the folder must not stand in for the real one. */
const RUN = ['-P', '-m', 'mase_server', 'lsp'];
const PROBE = ['-P', '-c', 'import importlib.util, sys; sys.exit(importlib.util.find_spec("mase_server") is None)'];
const PROBE_MS = 10_000;

/** The server's command line, or the interpreters that were tried and do not have it. */
export type Found = { command: string; args: string[] } | { tried: string[] };

/** The setting decides; without one, the first interpreter that has the package, the chosen ones before all others. */
export async function findServer(interpreters: Interpreters): Promise<Found> {
  const folders = workspace.workspaceFolders?.map((folder) => folder.uri) ?? [];
  const [command, ...args] = serverCommand(folders[0]);
  if (command !== undefined) return { command, args };
  const tried = new Set(interpreters.all);
  if (tried.size === 0) candidates(folders[0]?.fsPath).forEach((python) => tried.add(python));
  for (const python of tried) {
    if (await succeeds(python, PROBE)) return { command: python, args: RUN };
  }
  return { tried: [...tried] };
}

function succeeds(command: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(command, args, { cwd: os.tmpdir(), timeout: PROBE_MS }, (error) => resolve(error === null));
  });
}
