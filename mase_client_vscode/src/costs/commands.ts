/** The command that shows the costs of a model: one panel for each. */
import { Disposable, Uri, commands, window } from 'vscode';
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { CostPanel } from './panel';

/** What the command may be given, by a lens or a link. `row`: the id of a row to be shown. */
type Asked = Partial<PassTarget> & { row?: string };

export class CostCommands implements Disposable {
  private readonly api: PassApi;
  private readonly panels = new Map<string, CostPanel>();
  private readonly command = commands.registerCommand('mase.showCosts', (given?: Asked) => this.show(given ?? {}));

  constructor(
    private readonly server: Server,
    private readonly extension: Uri,
  ) {
    this.api = new PassApi(server);
  }

  dispose(): void {
    Disposable.from(this.command, ...this.panels.values()).dispose();
  }

  /** The costs of the model that is named, else of one of the active editor's file. */
  private async show(given: Asked): Promise<void> {
    try {
      const target = await this.api.target(given);
      if (target !== undefined) this.open(target).reveal(given.row);
    } catch (error) {
      void window.showErrorMessage(error instanceof Error ? error.message : `${error}`);
    }
  }

  private open({ path, model }: PassTarget): CostPanel {
    const key = `${path}\n${model}`;
    const known = this.panels.get(key);
    if (known !== undefined) return known;
    const panel = new CostPanel(this.server, this.extension, { path, model });
    panel.onClose(() => this.panels.delete(key));
    this.panels.set(key, panel);
    return panel;
  }
}
