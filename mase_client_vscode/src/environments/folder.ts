/** The interpreter that lies in the folder itself, else the one of the shell: .venv, VIRTUAL_ENV, python3. */
import * as fs from 'node:fs';
import * as path from 'node:path';
import { EventEmitter, Uri } from 'vscode';
import { EnvironmentProvider } from './provider';

const WINDOWS = process.platform === 'win32';
const IN_ENVIRONMENT = WINDOWS ? path.join('Scripts', 'python.exe') : path.join('bin', 'python');
const ON_PATH = WINDOWS ? ['python.exe'] : ['python3', 'python'];

export class FolderProvider implements EnvironmentProvider {
  readonly name = 'the folder or the shell';
  private readonly changed = new EventEmitter<void>();
  readonly onDidChange = this.changed.event;

  async interpreter(folder: Uri | undefined): Promise<string | undefined> {
    return candidates(folder?.fsPath).find((file) => fs.existsSync(file));
  }

  dispose(): void {
    this.changed.dispose();
  }
}

function candidates(folder: string | undefined): string[] {
  const environments = [folder && path.join(folder, '.venv'), folder && path.join(folder, 'venv'), process.env['VIRTUAL_ENV']];
  const directories = (process.env['PATH'] ?? '').split(path.delimiter).filter((directory) => directory !== '');
  return [
    ...environments.flatMap((environment) => (environment ? [path.join(environment, IN_ENVIRONMENT)] : [])),
    ...ON_PATH.flatMap((name) => directories.map((directory) => path.join(directory, name))),
  ];
}
