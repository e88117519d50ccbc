/** The commands of the palette and of the buttons in messages. */
import {
  Disposable,
  ExtensionContext,
  LogOutputChannel,
  ProcessExecution,
  Task,
  TaskRevealKind,
  TaskScope,
  commands,
  tasks,
  window,
} from 'vscode';
import { ExecuteCommandRequest } from 'vscode-languageclient/node';
import { showActions } from './actions';
import { pythonEditor } from './active';
import { CostCommands } from './costs/commands';
import { GraphCommands } from './graph/commands';
import { InputsCommands } from './inputs/commands';
import { collectReport } from './report';
import { PassCommands } from './passes/commands';
import { Root } from 'mase-client/records';
import { Server } from './server';
import { VerilogCommands } from './verilog/commands';
import { Walkthrough } from './walkthrough';

export function registerCommands(
  server: Server,
  log: LogOutputChannel,
  walkthrough: Walkthrough,
  context: ExtensionContext,
): Disposable {
  const { workspaceState, globalState, extensionUri } = context;
  const graphs = new GraphCommands(server, log, extensionUri, globalState);
  const costs = new CostCommands(server, extensionUri);
  const inputs = new InputsCommands(server, extensionUri);
  const table: Record<string, (...args: never[]) => unknown> = {
    ...new PassCommands(server, workspaceState).table,
    ...new VerilogCommands(server, log).table,
    ...graphs.table,
    ...costs.table,
    ...walkthrough.table,
    ...inputs.table,
    'mase.restart': () => server.restart(),
    'mase.showActions': showActions,
    'mase.showLog': () => log.show(true),
    'mase.collectReport': () => collectReport(server, log, context),
    'mase.retrace': (...uris: string[]) => retrace(server, uris),
    'mase.runInTerminal': runInTerminal,
    'mase.pickRoot': (uri?: string) => pickRoot(server, uri),
    'mase.openSettings': () => commands.executeCommand('workbench.action.openSettings', '@ext:mase.mase-vscode'),
  };
  return Disposable.from(graphs, costs, inputs, ...Object.entries(table).map(([name, run]) => commands.registerCommand(name, run)));
}

/** Show one model alone in a file where several share a class; the user picks one. */
async function pickRoot(server: Server, uri?: string): Promise<void> {
  const file = uri ?? pythonEditor()?.document.uri.toString();
  if (file === undefined || server.running === undefined) return;
  const roots = await server.running.sendRequest<Root[]>('mase/roots', { uri: file });
  const items = roots.map(({ root, found, picked }) => ({ label: root, description: picked ? 'shown' : '', detail: found, root }));
  const all = { label: 'All models', description: roots.some((each) => each.picked) ? '' : 'shown', detail: '', root: '' };
  const choice = await window.showQuickPick([...items, all], { placeHolder: 'The model whose shapes this file shows' });
  if (choice === undefined) return;
  await server.running.sendRequest(ExecuteCommandRequest.type, { command: 'mase.pickRoot', arguments: [file, choice.root] });
}

/** Run a program that the user chose to run, such as the installation of a package, where its output is seen. */
async function runInTerminal(title: string, [program, ...given]: [string, ...string[]]): Promise<void> {
  const task = new Task({ type: 'process' }, TaskScope.Workspace, title, 'MASE', new ProcessExecution(program, given));
  task.presentationOptions = { reveal: TaskRevealKind.Always, focus: false };
  await tasks.executeTask(task);
}

/** Trace files again although they have not changed; by default, the file of the active editor. */
async function retrace(server: Server, uris: string[]): Promise<void> {
  const active = pythonEditor()?.document.uri.toString();
  const files = uris.length > 0 || active === undefined ? uris : [active];
  await server.running?.sendRequest(ExecuteCommandRequest.type, { command: 'mase.retrace', arguments: files });
}
