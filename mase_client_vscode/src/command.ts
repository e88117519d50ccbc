/** Which command starts the server. */
import { execFile } from 'node:child_process';
import * as os from 'node:os';
import { workspace } from 'vscode';
import { Interpreters } from './environments/interpreters';
import { serverCommand } from './settings';

/** -P: a `torch.py` or `typing.py` in the folder must not stand in for the real one. */
const MODULE = ['-P', '-m', 'mase_server'];
const PROBE = ['-P', '-c', 'import mase_server'];
const PROBE_MS = 10_000;

/** The server's command line, or the interpreters that were tried and do not have it. */
export type Found = { command: string; args: string[] } | { tried: string[] };

/** The setting decides; without one, the first chosen interpreter that has the package. */
export async function findServer(interpreters: Interpreters): Promise<Found> {
  const [command, ...args] = serverCommand(workspace.workspaceFolders?.[0]?.uri);
  if (command !== undefined) return { command, args };
  const tried = interpreters.all;
  for (const python of tried) {
    if (await succeeds(python, PROBE)) return { command: python, args: [...MODULE, 'lsp'] };
  }
  return { tried };
}

function succeeds(command: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(command, args, { cwd: os.tmpdir(), timeout: PROBE_MS }, (error) => resolve(error === null));
  });
}
