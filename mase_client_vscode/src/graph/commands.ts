/** The command that shows a model's graph, and the panels that are open. */
import { Disposable, LogOutputChannel, Uri, window } from 'vscode';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { GraphApi } from './api';
import { GraphPanel } from './panel';

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
    this.listener = server.onViews((uris) => this.panels.forEach((panel) => panel.changed(uris)));
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
      const key = `${path}\n${model}`;
      const panel = this.panels.get(key) ?? this.opened(key, { path, model });
      panel.reveal(given.scope);
    } catch (error) {
      void window.showErrorMessage(error instanceof Error ? error.message : `${error}`);
    }
  }

  private opened(key: string, target: PassTarget): GraphPanel {
    const panel = new GraphPanel(target, this.api, this.log, this.extension);
    this.panels.set(key, panel);
    panel.onClose(() => this.panels.delete(key));
    return panel;
  }
}
