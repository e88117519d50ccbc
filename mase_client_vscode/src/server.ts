/** The server's life: one at a time, started, stopped and restarted in the order of the requests. */
import { Disposable, EventEmitter, LogOutputChannel, Uri, commands, window, workspace } from 'vscode';
import { State } from 'vscode-languageclient/node';
import { MaseClient, createClient } from './client';
import { Found, findServer } from './command';
import { CrashPolicy } from './crashes';
import { inert } from './errors';
import { Interpreters } from './environments/interpreters';
import { pipelinesNotification, slowNotification, statusNotification, viewsNotification } from './protocol';
import { MasePipelines, MaseStatus } from 'mase-client/records';
import { SECTION } from './settings';

/** VS Code ends its extensions after 4 s; a server that has not answered by then is killed by the client library. */
const STOP_MS = 2000;

export type ServerState = 'stopped' | 'starting' | 'running' | 'missing' | 'crashed' | 'untrusted';

export class Server implements Disposable {
  private client: MaseClient | undefined;
  private queue: Promise<void> = Promise.resolve();
  private state: ServerState = 'stopped';
  /** Which server was started last, in words; undefined before the first. */
  origin: string | undefined;
  private readonly stateChanged = new EventEmitter<ServerState>();
  private readonly statusArrived = new EventEmitter<MaseStatus>();
  readonly onDidChangeState = this.stateChanged.event;
  readonly onStatus = this.statusArrived.event;
  private readonly slowArrived = new EventEmitter<{ uri: string; text: string }>();
  /** A trace is slow, and why. */
  readonly onSlow = this.slowArrived.event;
  private readonly pipelinesArrived = new EventEmitter<MasePipelines>();
  readonly onPipelines = this.pipelinesArrived.event;
  private readonly viewsArrived = new EventEmitter<string[]>();
  /** The URIs of files whose results have changed. */
  readonly onViews = this.viewsArrived.event;

  constructor(
    private readonly interpreters: Interpreters,
    private readonly log: LogOutputChannel,
    private readonly trace: LogOutputChannel,
  ) {}

  /** Start the server unless it runs. Never rejects: errors are shown to the user. */
  start(): Promise<void> {
    return this.enqueue(() => this.doStart());
  }

  restart(): Promise<void> {
    return this.enqueue(async () => {
      await this.doStop();
      await this.doStart();
    });
  }

  stop(): Promise<void> {
    return this.enqueue(() => this.doStop());
  }

  /** The command that starts the server, or the interpreters that were tried in vain. */
  command(): Promise<Found> {
    return findServer(this.interpreters);
  }

  /** The Python chosen for the models of a folder, undefined if none was chosen. */
  interpreter(folder: Uri): string | undefined {
    return this.interpreters.of(folder);
  }

  /** The running client, else undefined. */
  get running(): MaseClient | undefined {
    return this.client?.isRunning() ? this.client : undefined;
  }

  dispose(): void {
    Disposable.from(this.stateChanged, this.statusArrived, this.slowArrived, this.pipelinesArrived, this.viewsArrived).dispose();
  }

  /** The interpreters changed: the server restarts the affected workers; if no server runs, it may start now. */
  async interpretersChanged(): Promise<void> {
    if (this.state === 'missing') await this.start();
    else await this.running?.tellConfiguration();
  }

  private become(state: ServerState): void {
    this.state = state;
    this.stateChanged.fire(state);
  }

  private enqueue(task: () => Promise<void>): Promise<void> {
    this.queue = this.queue.then(task).catch((error: unknown) => this.log.error(`${error}`));
    return this.queue;
  }

  private async doStart(): Promise<void> {
    if (this.client !== undefined && this.client.state !== State.Stopped) return;
    if (!workspace.isTrusted) return this.become('untrusted');
    this.become('starting');
    const found = await findServer(this.interpreters);
    if ('tried' in found) return this.missing(found.tried);
    this.origin = found.origin;
    this.log.info(`Starting the server (${found.origin}): ${[found.command, ...found.args].join(' ')}`);
    const policy = new CrashPolicy(
      () => this.become('starting'),
      (crashes) => this.gaveUp(crashes),
    );
    const client = createClient({ command: found.command, args: found.args }, this.interpreters, policy, this.log, this.trace);
    client.onNotification(statusNotification, (status) => this.statusArrived.fire(status));
    client.onNotification(slowNotification, (slow) => this.slowArrived.fire(slow));
    client.onNotification(pipelinesNotification, (pipelines) => this.pipelinesArrived.fire(pipelines));
    client.onNotification(viewsNotification, ({ uris }) => this.viewsArrived.fire(uris));
    client.onDidChangeState(({ newState }) => newState === State.Running && this.become('running'));
    this.client = client;
    await client.start().catch((error: unknown) => this.log.error(`The server did not start: ${error}`));
  }

  private async doStop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    if (client === undefined) return;
    await client.dispose(STOP_MS).catch((error: unknown) => this.log.warn(`The server did not end in time: ${error}`));
    this.become('stopped');
  }

  private missing(tried: string[]): void {
    this.become('missing');
    const found = tried.length > 0 ? `${tried.join(', ')} cannot run it` : 'No Python interpreter was found';
    const text = `The MASE server needs Python 3.11 or newer. ${found}. Choose another interpreter, or set ${SECTION}.server.command.`;
    void this.offer(text, { 'Open Settings': 'mase.openSettings', 'Show Log': 'mase.showLog' });
  }

  private gaveUp(crashes: number): void {
    this.become('crashed');
    const text = `The MASE server ended ${crashes} times within 3 minutes and was not started again.`;
    void this.offer(text, { 'Restart Server': 'mase.restart', 'Show Log': 'mase.showLog' });
  }

  private async offer(text: string, actions: Record<string, string>): Promise<void> {
    this.log.error(text);
    const chosen = await window.showErrorMessage(inert(text), ...Object.keys(actions));
    const command = chosen && actions[chosen];
    if (command) await commands.executeCommand(command);
  }
}
