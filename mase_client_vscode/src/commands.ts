/** The commands of the palette and of the buttons in messages. */
import { Disposable, LogOutputChannel, commands, env, window } from 'vscode';
import { ExecuteCommandRequest } from 'vscode-languageclient/node';
import { Interpreters } from './environments/interpreters';
import { Server } from './server';

export function registerCommands(server: Server, interpreters: Interpreters, log: LogOutputChannel): Disposable {
  const table: Record<string, (...args: string[]) => unknown> = {
    'mase.restart': () => server.restart(),
    'mase.showLog': () => log.show(true),
    'mase.retrace': (...uris: string[]) => retrace(server, uris),
    'mase.openSettings': () => commands.executeCommand('workbench.action.openSettings', '@ext:mase.mase-vscode'),
    'mase.copyInstallCommand': () =>
      env.clipboard.writeText(`${interpreters.all[0] ?? 'python3'} -m pip install mase-server`),
  };
  return Disposable.from(...Object.entries(table).map(([name, run]) => commands.registerCommand(name, run)));
}

/** Trace files again, though they have not changed; where none is named, the file of the active editor. */
async function retrace(server: Server, uris: string[]): Promise<void> {
  const active = window.activeTextEditor?.document.uri.toString();
  const files = uris.length > 0 || active === undefined ? uris : [active];
  await server.running?.sendRequest(ExecuteCommandRequest.type, { command: 'mase.retrace', arguments: files });
}
