/** The extension's own reading of its settings; the server requests its part by `workspace/configuration`. */
import * as os from 'node:os';
import { Uri, workspace } from 'vscode';

export const SECTION = 'mase';

/** The server command set by the user, empty if none is set. */
export function serverCommand(folder: Uri | undefined): string[] {
  const command = workspace.getConfiguration(SECTION, folder).get<string[]>('server.command', []);
  return command.map((part) => expand(part, folder));
}

/** The interpreter that the user set for a folder, undefined if none is set. */
export function interpreter(folder: Uri | undefined): string | undefined {
  const path = workspace.getConfiguration(SECTION, folder).get<string>('interpreter', '').trim();
  return path === '' ? undefined : expand(path, folder);
}

function expand(text: string, folder: Uri | undefined): string {
  const home = text.replace(/^~(?=$|[\\/])/, os.homedir());
  return home.replaceAll('${workspaceFolder}', folder?.fsPath ?? os.homedir());
}
