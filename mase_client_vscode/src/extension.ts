/** MASE for VS Code: starts the server for trusted workspaces and shows its state. */
import { ExtensionContext, window, workspace } from 'vscode';
import { registerCommands } from './commands';
import { Interpreters } from './environments/interpreters';
import { PythonEnvironmentsProvider } from './environments/pythonEnvironments';
import { PythonExtensionProvider } from './environments/pythonExtension';
import { SettingProvider } from './environments/setting';
import { Server } from './server';
import { SECTION } from './settings';
import { StatusItem } from './status';
import { TraceChannel } from './trace';
import { Highlight } from './verilog/highlight';
import { Walkthrough } from './walkthrough';

let server: Server | undefined;

/** The API for other extensions and for the tests. */
export interface Api {
  /** The status item's text, undefined while it is hidden. */
  readonly status: string | undefined;
  /** The server's process id, undefined while none runs. */
  readonly pid: number | undefined;
}

export function activate(context: ExtensionContext): Api {
  const started = performance.now();
  const log = window.createOutputChannel('MASE', { log: true });
  const trace = new TraceChannel();
  const providers = [new SettingProvider(), new PythonEnvironmentsProvider(), new PythonExtensionProvider()];
  const interpreters = new Interpreters(providers, log);
  const mase = (server = new Server(interpreters, log, trace));
  const status = new StatusItem(mase, interpreters);
  const walkthrough = new Walkthrough(mase, context);

  const begin = async (): Promise<void> => {
    await interpreters.refresh();
    await mase.start();
  };
  context.subscriptions.push(
    log,
    trace,
    interpreters,
    mase,
    status,
    new Highlight(mase),
    registerCommands(mase, log, walkthrough, context),
    walkthrough,
    interpreters.onDidChange(() => void mase.interpretersChanged()),
    workspace.onDidGrantWorkspaceTrust(() => void begin()),
    workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration(`${SECTION}.server.command`)) void interpreters.refresh().then(() => mase.restart());
      else if (event.affectsConfiguration(SECTION)) void mase.running?.tellConfiguration();
    }),
  );
  const first = mase.onStatus(({ state }) => {
    if (state !== 'ready') return;
    first.dispose();
    log.info(`The first shapes arrived ${Math.round(performance.now() - started)} ms after the activation began`);
  });
  void begin();
  log.info(`Activated in ${(performance.now() - started).toFixed(1)} ms`);
  return {
    get status() {
      return status.text;
    },
    get pid() {
      return mase.running?.serverProcess?.pid;
    },
  };
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}
