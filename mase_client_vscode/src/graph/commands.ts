/** The command that shows a model's graph. */
import { Disposable, LogOutputChannel, Memento, Uri } from 'vscode';
import { guarded } from '../errors';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Panels } from '../webview/panels';
import { GraphApi } from './api';
import { GraphPanel, KIND } from './panel';

/** The arguments of the command from a lens or a link. `scope`: the path of a module to show. */
type Asked = Partial<PassTarget> & { scope?: string };

export class GraphCommands implements Disposable {
  private readonly api: GraphApi;
  private readonly panels: Panels<GraphPanel>;

  /** `memory`: keeps what a person chose for all graphs. */
  constructor(server: Server, log: LogOutputChannel, extension: Uri, memory: Memento) {
    this.api = new GraphApi(server);
    this.panels = new Panels(KIND.type, server, (target, brought) => new GraphPanel(target, this.api, log, extension, memory, brought));
  }

  get table(): Record<string, (given?: Asked) => Promise<void>> {
    return { 'mase.showGraph': (given) => guarded(() => this.show(given ?? {})) };
  }

  dispose(): void {
    this.panels.dispose();
  }

  private async show(given: Asked): Promise<void> {
    const target = await this.api.passes.target(given);
    if (target !== undefined) this.panels.of(target).reveal(given.scope);
  }
}
