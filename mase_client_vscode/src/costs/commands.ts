/** The command that shows the costs of a model. */
import { Disposable, Uri } from 'vscode';
import { guarded } from '../errors';
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Panels } from '../webview/panels';
import { CostPanel, KIND } from './panel';

/** The arguments of the command from a lens or a link. `row`: the id of a row to show. */
type Asked = Partial<PassTarget> & { row?: string };

export class CostCommands implements Disposable {
  private readonly api: PassApi;
  private readonly panels: Panels<CostPanel>;

  constructor(server: Server, extension: Uri) {
    this.api = new PassApi(server);
    this.panels = new Panels(KIND.type, server, (target, brought) => new CostPanel(target, this.api, extension, brought));
  }

  get table(): Record<string, (given?: Asked) => Promise<void>> {
    return { 'mase.showCosts': (given) => guarded(() => this.show(given ?? {})) };
  }

  dispose(): void {
    this.panels.dispose();
  }

  /** The costs of the named model, else of a model in the active editor's file. */
  private async show(given: Asked): Promise<void> {
    const target = await this.api.target(given);
    if (target !== undefined) this.panels.of(target).reveal(given.row);
  }
}
