/** The command that shows a model's graph, and the panels that are open. */
import { Disposable, LogOutputChannel, Uri, WebviewPanel, window } from 'vscode';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { GraphApi } from './api';
import { Kept } from './messages';
import { GraphPanel, KIND } from './panel';

/** What the command may be given, by a lens or a link. `scope`: the path of a module to be shown. */
type Asked = Partial<PassTarget> & { scope?: string };

export class GraphCommands implements Disposable {
  private readonly api: GraphApi;
  private readonly panels = new Map<string, GraphPanel>();
  private readonly listener: Disposable;

  constructor(
    server: Server,
    private readonly log: LogOutputChannel,
    private readonly extension: Uri,
  ) {
    this.api = new GraphApi(server);
    this.listener = Disposable.from(
      server.onViews((uris) => this.panels.forEach((panel) => panel.changed(uris))),
      window.registerWebviewPanelSerializer(KIND.type, { deserializeWebviewPanel: (panel, kept) => this.again(panel, kept as Partial<Kept> | undefined) }),
    );
  }

  get table(): Record<string, (given?: Asked) => Promise<void>> {
    return { 'mase.showGraph': (given) => this.show(given ?? {}) };
  }

  dispose(): void {
    this.listener.dispose();
    this.panels.forEach((panel) => panel.dispose());
  }

  private async show(given: Asked): Promise<void> {
    try {
      const target = await this.api.passes.target(given);
      if (target === undefined) return;
      const { path, model } = target;
      const panel = this.panels.get(keyOf({ path, model })) ?? this.opened({ path, model });
      panel.reveal(given.scope);
    } catch (error) {
      void window.showErrorMessage(error instanceof Error ? error.message : `${error}`);
    }
  }

  private opened(target: PassTarget, brought?: WebviewPanel): GraphPanel {
    const panel = new GraphPanel(target, this.api, this.log, this.extension, brought);
    const key = keyOf(target);
    this.panels.set(key, panel);
    panel.onClose(() => this.panels.get(key) === panel && this.panels.delete(key));
    return panel;
  }

  /** A panel that was open when the window was loaded again. */
  private async again(panel: WebviewPanel, kept: Partial<Kept> | undefined): Promise<void> {
    if (kept?.path === undefined || kept.model === undefined) panel.dispose();
    else this.opened({ path: kept.path, model: kept.model }, panel);
  }
}

function keyOf({ path, model }: PassTarget): string {
  return `${path}\n${model}`;
}
