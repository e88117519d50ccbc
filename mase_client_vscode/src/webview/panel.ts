/** A panel with one of our pages in it, and the typed messages between the two. */
import { randomBytes } from 'node:crypto';
import { Disposable, EventEmitter, TabGroup, TabInputNotebook, TabInputText, TabInputWebview, Uri, WebviewPanel, window } from 'vscode';
import { columnOf, Groups } from './column';
import { html } from './html';

/** The kind of a page: `type` is VS Code's view type, `page` the name of its script and styles in dist/pages. */
export interface PageKind {
  type: string;
  page: string;
  /** Further parts of its content security policy. */
  allow?: string[];
}

/** The first message of every page, each time it is loaded: after a reload, or when its tab is shown again. */
export const READY = 'ready';

/**
 * One panel. `ToPage` and `FromPage` are unions of messages, told apart by `type`.
 *
 * VS Code discards a hidden page; when it is shown again, the page reports that it is ready and must get all data
 * again. A page stores its own state (zoom, order) with `remember` on its side.
 */
export class Panel<ToPage extends { type: string }, FromPage extends { type: string }> implements Disposable {
  private readonly listeners: Disposable[];
  private readonly arrived = new EventEmitter<FromPage>();
  private readonly becameReady = new EventEmitter<void>();
  private readonly closed = new EventEmitter<void>();
  readonly onMessage = this.arrived.event;
  readonly onReady = this.becameReady.event;
  readonly onClose = this.closed.event;
  private ready = false;

  private constructor(
    readonly panel: WebviewPanel,
    kind: PageKind,
    private readonly extension: Uri,
  ) {
    const { webview } = panel;
    webview.options = { enableScripts: true, localResourceRoots: [this.folder] };
    this.listeners = [
      webview.onDidReceiveMessage((message: FromPage | { type: typeof READY }) => this.receive(message)),
      panel.onDidChangeViewState(() => panel.visible || (this.ready = false)),
      panel.onDidDispose(() => this.dispose()),
    ];
    const address = (name: string) => webview.asWebviewUri(Uri.joinPath(this.folder, name)).toString();
    const files = { script: address(`${kind.page}.js`), style: address(`${kind.page}.css`) };
    const nonce = randomBytes(16).toString('hex');
    webview.html = html({ title: panel.title, ...files, source: webview.cspSource, nonce, allow: kind.allow ?? [] });
  }

  /**
   * Around the panel that VS Code restored, else a new one: in the group of another page, or beside its file at `path`.
   * The focus stays where it is.
   */
  static of<To extends { type: string }, From extends { type: string }>(
    kind: PageKind,
    { title, path }: { title: string; path: string },
    extension: Uri,
    brought?: WebviewPanel,
  ): Panel<To, From> {
    const panel = brought ?? window.createWebviewPanel(kind.type, title, { viewColumn: columnOf(groupsOf(path)), preserveFocus: true });
    return new Panel(panel, kind, extension);
  }

  /** The folder of the pages' files. */
  private get folder(): Uri {
    return Uri.joinPath(this.extension, 'dist', 'pages');
  }

  /** Send a message to the page; false if the page is not loaded: it will request everything when it is. */
  post(message: ToPage): boolean {
    if (this.ready) void this.panel.webview.postMessage(message);
    return this.ready;
  }

  dispose(): void {
    this.closed.fire();
    Disposable.from(...this.listeners, this.arrived, this.becameReady, this.closed).dispose();
    this.panel.dispose();
  }

  private receive(message: FromPage | { type: typeof READY }): void {
    if (message.type !== READY) return this.arrived.fire(message as FromPage);
    this.ready = true;
    this.becameReady.fire();
  }
}

/** The editor groups with pages of ours, restored ones too, and those that show the file at `path`. */
function groupsOf(path: string): Groups {
  const { all, activeTabGroup } = window.tabGroups;
  const those = (fits: (group: TabGroup) => boolean) => all.filter(fits).map(({ viewColumn }) => viewColumn);
  return {
    // VS Code puts a prefix before the type of a view.
    pages: those(({ tabs }) => tabs.some(({ input }) => input instanceof TabInputWebview && /\bmase\.\w+$/.test(input.viewType))),
    sources: those(({ activeTab }) => {
      const input = activeTab?.input;
      return (input instanceof TabInputText || input instanceof TabInputNotebook) && input.uri.fsPath === path;
    }),
    active: activeTabGroup.viewColumn,
  };
}
