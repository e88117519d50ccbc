/**
 * The chosen interpreter of every workspace folder, kept up to date.
 *
 * Only the user's choices count: without one, the server itself looks for an interpreter, file by file.
 */
import { Disposable, EventEmitter, LogOutputChannel, Uri, workspace } from 'vscode';
import { EnvironmentProvider } from './provider';

/** The Python extensions report one choice several times, so changes are collected for a moment. */
const SETTLE_MS = 300;
/** An extension that takes longer to answer is skipped; its change event brings its answer later. */
const PATIENCE_MS = 10_000;

export class Interpreters implements Disposable {
  private readonly changed = new EventEmitter<void>();
  /** Fires only when a path has really changed. */
  readonly onDidChange = this.changed.event;
  private readonly listeners: Disposable[];
  private timer: NodeJS.Timeout | undefined;
  private paths = new Map<string, string>();
  private round = 0;

  /** `providers`: the first that knows an interpreter decides. */
  constructor(
    private readonly providers: readonly EnvironmentProvider[],
    private readonly log: LogOutputChannel,
  ) {
    this.listeners = [
      workspace.onDidChangeWorkspaceFolders(() => this.soon()),
      ...providers.flatMap((provider) => [provider, provider.onDidChange(() => this.soon())]),
    ];
  }

  /** Every chosen interpreter, the first folder's first. */
  get all(): string[] {
    return [...new Set(this.paths.values())];
  }

  /** The interpreter of a folder, or of files outside any; undefined: none was chosen. */
  of(folder: Uri | undefined): string | undefined {
    return this.paths.get(key(folder));
  }

  /** In the form of `initializationOptions.interpreter`. */
  toProtocol(): Record<string, string> | string | null {
    if (workspace.workspaceFolders === undefined) return this.of(undefined) ?? null;
    return Object.fromEntries(this.paths);
  }

  /** Ask all providers again. */
  async refresh(): Promise<void> {
    const round = ++this.round;
    const folders: (Uri | undefined)[] = workspace.workspaceFolders?.map((folder) => folder.uri) ?? [undefined];
    const found = await Promise.all(folders.map(async (folder) => [key(folder), await this.ask(folder)] as const));
    if (round !== this.round) return; // a newer request is running: its answer counts
    const paths = new Map(found.flatMap(([folder, path]) => (path === undefined ? [] : [[folder, path] as const])));
    const same = paths.size === this.paths.size && [...paths].every(([folder, path]) => this.paths.get(folder) === path);
    this.paths = paths;
    if (!same) this.changed.fire();
  }

  dispose(): void {
    clearTimeout(this.timer);
    Disposable.from(...this.listeners, this.changed).dispose();
  }

  private soon(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.refresh(), SETTLE_MS);
  }

  private async ask(folder: Uri | undefined): Promise<string | undefined> {
    for (const provider of this.providers) {
      const path = await this.answer(provider, folder);
      if (path === undefined) continue;
      this.log.info(`Interpreter of ${folder?.fsPath ?? 'files outside any folder'}: ${path} (${provider.name})`);
      return path;
    }
    this.log.info(`No interpreter was chosen for ${folder?.fsPath ?? 'files outside any folder'}`);
    return undefined;
  }

  private async answer(provider: EnvironmentProvider, folder: Uri | undefined): Promise<string | undefined> {
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), PATIENCE_MS)));
    try {
      return await Promise.race([provider.interpreter(folder), patience]);
    } catch (error) {
      this.log.warn(`${provider.name} failed to name an interpreter: ${error}`);
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }
}

function key(folder: Uri | undefined): string {
  return folder?.toString() ?? '';
}
