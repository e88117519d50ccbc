/** Interpreters that the user did not choose but that may be usable: .venv, VIRTUAL_ENV, python3. */
import * as fs from 'node:fs';
import * as path from 'node:path';

const WINDOWS = process.platform === 'win32';
const IN_ENVIRONMENT = WINDOWS ? path.join('Scripts', 'python.exe') : path.join('bin', 'python');
const ON_PATH = WINDOWS ? ['python.exe'] : ['python3', 'python'];

/** The existing interpreters of a folder and of the shell, best first. */
export function candidates(folder: string | undefined): string[] {
  const inFolder = folder === undefined ? [] : ['.venv', 'venv'].map((name) => path.join(folder, name));
  const active = process.env['VIRTUAL_ENV'];
  const environments = active === undefined || !path.isAbsolute(active) ? inFolder : [...inFolder, active];
  const inEnvironments = environments.map((environment) => path.join(environment, IN_ENVIRONMENT));
  const onPath = ON_PATH.flatMap((name) => onThePath(name) ?? []);
  return [...inEnvironments.filter((file) => fs.existsSync(file)), ...onPath];
}

function onThePath(name: string): string | undefined {
  const directories = (process.env['PATH'] ?? '').split(path.delimiter).filter((directory) => path.isAbsolute(directory));
  return directories.map((directory) => path.join(directory, name)).find((file) => fs.existsSync(file));
}
