/** The command that shows the costs of a model: one panel for each. */
import { Disposable, Uri, commands, window } from 'vscode';
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { CostPanel } from './panel';

export class CostCommands implements Disposable {
  private readonly api: PassApi;
  private readonly panels = new Map<string, CostPanel>();
  private readonly command = commands.registerCommand('mase.showCosts', (given?: Partial<PassTarget>) => this.show(given));

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
  private async show(given?: Partial<PassTarget>): Promise<void> {
    try {
      const target = await this.api.target(given);
      if (target !== undefined) this.open(target);
    } catch (error) {
      void window.showErrorMessage(error instanceof Error ? error.message : `${error}`);
    }
  }

  private open({ path, model }: PassTarget): void {
    const key = `${path}\n${model}`;
    const known = this.panels.get(key);
    if (known !== undefined) return known.reveal();
    const panel = new CostPanel(this.server, this.extension, { path, model });
    panel.onClose(() => this.panels.delete(key));
    this.panels.set(key, panel);
  }
}
