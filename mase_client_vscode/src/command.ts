/** Chooses the command that starts the server. */
import { execFile } from 'node:child_process';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { workspace } from 'vscode';
import { candidates } from './environments/candidates';
import { Interpreters } from './environments/interpreters';
import { serverCommand } from './settings';
import { Installed, TELL_INSTALLED, objection, versionIn } from './versions';

/** -P: a `torch.py` or `typing.py` in the folder must not replace the real one. */
const RUN = ['-P', '-m', 'mase_server', 'lsp'];
const PROBE = ['-P', '-c', TELL_INSTALLED];
/** Start programs that need no folder here: an empty entry of PYTHONPATH means the current folder. */
export const BUNDLED = path.join(__dirname, '..', 'bundled');
/** The server in the extension; any new enough Python runs it, and an older one refuses `-P`. */
const BROUGHT = ['-P', path.join(BUNDLED, 'start.py')];
const PROBE_MS = 10_000;

/** The server's command line. `origin`: which server it is, in words. */
export interface Command {
  command: string;
  args: string[];
  origin: string;
}

/** The command, or the interpreters that were tried and cannot run the server. */
export type Found = Command | { tried: string[] };

/**
 * The setting decides. Without it, the first interpreter whose own server is at least as new as the one in the
 * extension is used, else the first that can run that one; the chosen interpreters come before all others.
 */
export async function findServer(interpreters: Interpreters): Promise<Found> {
  const folders = workspace.workspaceFolders?.map((folder) => folder.uri) ?? [];
  const [command, ...args] = serverCommand(folders[0]);
  if (command !== undefined) return { command, args, origin: 'as mase.server.command says' };
  const tried = new Set(interpreters.all);
  if (tried.size === 0) candidates(folders[0]?.fsPath).forEach((python) => tried.add(python));
  const brought = await broughtVersion();
  const others: string[] = [];
  for (const python of tried) {
    const installed = await installedIn(python);
    if (installed === undefined) continue;
    const against = objection(installed, brought);
    if (against === undefined) return { command: python, args: RUN, origin: `${installed.version}, installed in ${python}` };
    others.push(`; ${against} of ${python}`);
  }
  for (const python of tried) {
    const works = (await output(python, [...BROUGHT, '--version'])) !== undefined;
    if (works) return { command: python, args: [...BROUGHT, 'lsp'], origin: `${brought}, of the extension${others.join('')}` };
  }
  return { tried: [...tried] };
}

async function broughtVersion(): Promise<string> {
  return versionIn(await fs.promises.readFile(path.join(BUNDLED, 'server', 'mase_server', '__init__.py'), 'utf8'));
}

async function installedIn(python: string): Promise<Installed | undefined> {
  const told = await output(python, PROBE);
  return told === undefined ? undefined : (JSON.parse(told) as Installed);
}

/** The output of a command, undefined if it fails. */
function output(command: string, args: string[]): Promise<string | undefined> {
  return new Promise((resolve) => {
    const options = { cwd: BUNDLED, timeout: PROBE_MS };
    execFile(command, args, options, (error, printed) => resolve(error === null ? printed : undefined));
  });
}
