/** Which command starts the server. */
import { execFile } from 'node:child_process';
import * as os from 'node:os';
import * as path from 'node:path';
import { workspace } from 'vscode';
import { candidates } from './environments/candidates';
import { Interpreters } from './environments/interpreters';
import { serverCommand } from './settings';

/** -P: a `torch.py` or `typing.py` in the folder must not stand in for the real one. */
const RUN = ['-P', '-m', 'mase_server', 'lsp'];
const PROBE = ['-P', '-c', 'import importlib.util, sys; sys.exit(importlib.util.find_spec("mase_server") is None)'];
/** The server that the extension brings; any Python that is new enough runs it, and an older one refuses `-P`. */
const BROUGHT = ['-P', path.join(__dirname, '..', 'bundled', 'start.py')];
const PROBE_MS = 10_000;

/** The server's command line, or the interpreters that were tried and cannot run it. */
export type Found = { command: string; args: string[] } | { tried: string[] };

/**
 * The setting decides; without one, the first interpreter that has the package, else the first that can run the server
 * that the extension brings; the chosen ones before all others.
 */
export async function findServer(interpreters: Interpreters): Promise<Found> {
  const folders = workspace.workspaceFolders?.map((folder) => folder.uri) ?? [];
  const [command, ...args] = serverCommand(folders[0]);
  if (command !== undefined) return { command, args };
  const tried = new Set(interpreters.all);
  if (tried.size === 0) candidates(folders[0]?.fsPath).forEach((python) => tried.add(python));
  for (const python of tried) {
    if (await succeeds(python, PROBE)) return { command: python, args: RUN };
  }
  for (const python of tried) {
    if (await succeeds(python, [...BROUGHT, '--version'])) return { command: python, args: [...BROUGHT, 'lsp'] };
  }
  return { tried: [...tried] };
}

function succeeds(command: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(command, args, { cwd: os.tmpdir(), timeout: PROBE_MS }, (error) => resolve(error === null));
  });
}
