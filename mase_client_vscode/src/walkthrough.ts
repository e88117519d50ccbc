/** First steps: a walkthrough that is offered once, and the actions of its buttons. */
import * as path from 'node:path';
import { Disposable, ExtensionContext, Memento, TabInputText, Uri, commands, extensions, window, workspace } from 'vscode';
import { inert } from './errors';
import { Server } from './server';
import { SECTION } from './settings';

const OFFERED = 'walkthroughOffered';
const PYTHON_EXTENSIONS = ['ms-python.python', 'ms-python.vscode-python-envs'];
const EXAMPLE = path.join(__dirname, 'example.py');

/** Offers the walkthrough when the first file is ready, and never again. */
export class Walkthrough implements Disposable {
  private readonly memory: Memento;
  private shown = false;
  private readonly listener: Disposable;

  constructor(
    server: Server,
    private readonly context: ExtensionContext,
  ) {
    this.memory = context.globalState;
    context.globalState.setKeysForSync([OFFERED]); // seen on one machine, seen on all
    this.listener = server.onStatus(({ state }) => {
      if (state === 'ready') void this.ready();
    });
  }

  get table(): Record<string, (...args: never[]) => unknown> {
    return {
      [`${SECTION}.walkthrough`]: () => this.open(),
      [`${SECTION}.createExample`]: createExample,
      [`${SECTION}.chooseInterpreter`]: chooseInterpreter,
      [`${SECTION}.tryInFile`]: tryInFile,
    };
  }

  dispose(): void {
    this.listener.dispose();
  }

  private async ready(): Promise<void> {
    this.shown = true;
    await mark('ready');
    const wanted = workspace.getConfiguration('workbench').get('welcomePage.walkthroughs.openOnInstall', true);
    if (!wanted || this.memory.get(OFFERED, false)) return;
    await this.memory.update(OFFERED, true);
    const text = 'MASE shows the shapes of this model. It also fixes wrong sizes, quantises, draws the graph and writes Verilog.';
    if ((await window.showInformationMessage(inert(text), 'Show Me How', 'Not Now')) === 'Show Me How') await this.open();
  }

  private async open(): Promise<void> {
    await commands.executeCommand('workbench.action.openWalkthrough', `${this.context.extension.id}#start`, false);
    if (this.shown) await mark('ready');
  }
}

/**
 * Mark a step with this completion context as done. VS Code notices only a change of the context after it has read the
 * walkthrough, so the context is set for a moment, each time.
 */
async function mark(what: string): Promise<void> {
  for (const holds of [true, false]) await commands.executeCommand('setContext', `${SECTION}.${what}`, holds);
}

/** Write an example to the file that the user chooses, and open it. */
async function createExample(): Promise<void> {
  const folder = workspace.workspaceFolders?.[0]?.uri;
  const options = { filters: { Python: ['py'] }, title: 'Create an Example Model' };
  const proposed = folder && { defaultUri: Uri.joinPath(folder, 'mase_example.py') };
  const target = await window.showSaveDialog({ ...options, ...proposed });
  if (target === undefined) return;
  await workspace.fs.copy(Uri.file(EXAMPLE), target, { overwrite: true });
  await window.showTextDocument(target);
}

/** The Python extension's own list if that is installed, else the setting. */
async function chooseInterpreter(): Promise<void> {
  const known = PYTHON_EXTENSIONS.some((id) => extensions.getExtension(id) !== undefined);
  if (known) await commands.executeCommand('python.setInterpreter');
  else await commands.executeCommand('workbench.action.openSettings', `${SECTION}.interpreter`);
}

/** Run one of our commands in an open Python file: during the walkthrough, no file is active. */
async function tryInFile(command: string): Promise<void> {
  const file = openPythonFile();
  if (file !== undefined) {
    await window.showTextDocument(file);
    await mark(`tried.${command.slice(SECTION.length + 1)}`); // VS Code does not notice commands that an extension runs
    await commands.executeCommand(command);
    return;
  }
  const create = 'Create an Example';
  const chosen = await window.showInformationMessage('Open a Python file that has a model first.', create);
  if (chosen === create) await createExample();
}

/** A tab with a Python file; the active tabs of their groups come first. */
function openPythonFile(): Uri | undefined {
  const tabs = window.tabGroups.all.flatMap((group) => group.tabs).sort((a, b) => Number(b.isActive) - Number(a.isActive));
  const files = tabs.flatMap(({ input }) => (input instanceof TabInputText ? [input.uri] : []));
  return files.find((uri) => uri.scheme === 'file' && uri.path.endsWith('.py'));
}
