/** The commands for inputs: the form, another set, two sets side by side. */
import { Disposable, EventEmitter, QuickPickItem, TextDocumentContentProvider, Uri, commands, window, workspace } from 'vscode';
import { guarded } from '../errors';
import { PassTarget } from '../protocol';
import { InputComparison, Inputs } from 'mase-client/records';
import { Server } from '../server';
import { Panels } from '../webview/panels';
import { InputsApi } from './api';
import { text } from './comparison';
import { InputsPanel, KIND } from './panel';
import { nameOf } from './texts';

type Asked = Partial<PassTarget> & { set?: string; sets?: [string, string] };

/** The scheme of the two sides of a comparison. */
const SCHEME = 'mase-inputs';

export class InputsCommands implements Disposable, TextDocumentContentProvider {
  private readonly api: InputsApi;
  private readonly panels: Panels<InputsPanel>;
  private readonly sides = new Map<string, string>();
  private readonly changed = new EventEmitter<Uri>();
  readonly onDidChange = this.changed.event;
  private readonly listeners: Disposable[];

  constructor(server: Server, extension: Uri) {
    this.api = new InputsApi(server);
    this.panels = new Panels(KIND.type, server, (target, brought) => new InputsPanel(target, this.api, extension, brought));
    this.listeners = [
      this.panels,
      workspace.registerTextDocumentContentProvider(SCHEME, this),
      workspace.onDidCloseTextDocument(({ uri }) => uri.scheme === SCHEME && this.sides.delete(uri.toString())),
    ];
  }

  get table(): Record<string, (given?: Asked) => Promise<void>> {
    return {
      'mase.changeInputs': (given) => this.run(given, async (target) => this.panels.of(target).reveal()),
      'mase.pickInputs': (given) => this.run(given, (target) => this.pick(target, given?.set)),
      'mase.compareInputs': (given) => this.run(given, (target) => this.compare(target, given ?? {})),
    };
  }

  provideTextDocumentContent(uri: Uri): string {
    return this.sides.get(uri.toString()) ?? 'This comparison has ended: compare the inputs again.';
  }

  dispose(): void {
    Disposable.from(...this.listeners, this.changed).dispose();
  }

  private async run(given: Asked | undefined, work: (target: PassTarget) => Promise<void>): Promise<void> {
    await guarded(async () => {
      const target = await this.api.passes.target(given);
      if (target !== undefined) await work({ path: target.path, model: target.model });
    });
  }

  private async pick(target: PassTarget, set: string | undefined): Promise<void> {
    const known = await this.api.known(target);
    const chosen = set ?? (await this.choose(known, `Which inputs for ${target.model}`, [...known.sets, ...known.builders, '']));
    if (chosen !== undefined) await this.api.pick(target, chosen);
  }

  private async compare(target: PassTarget, { set, sets }: Asked): Promise<void> {
    const pair = sets ?? (await this.pair(target, set));
    if (pair === undefined) return;
    const told = await this.api.compared(target, pair);
    const uris = [this.side(told, 'before', pair[0]), this.side(told, 'after', pair[1])];
    const title = `${target.model}: inputs ${nameOf(pair[0])} ↔ ${nameOf(pair[1])}`;
    await commands.executeCommand('vscode.diff', ...uris, title);
  }

  private async pair(target: PassTarget, set: string | undefined): Promise<[string, string] | undefined> {
    const known = await this.api.known(target);
    const all = [...known.sets, ''];
    if (known.sets.length === 0) throw new Error(`${target.model} has no named sets of inputs: add one in the form of "Change Inputs".`);
    const one = set ?? (all.length === 2 ? all[0] : await this.choose(known, 'Inputs to compare', all));
    if (one === undefined) return undefined;
    const left = all.filter((each) => each !== one);
    const other = left.length === 1 ? left[0] : await this.choose(known, `Compare ${nameOf(one)} with`, left);
    return other === undefined ? undefined : [one, other];
  }

  private side(told: InputComparison, side: 'before' | 'after', set: string): Uri {
    const query = JSON.stringify({ path: told.path, side });
    const uri = Uri.from({ scheme: SCHEME, path: `/${told.model} [${nameOf(set)}]`, query });
    this.sides.set(uri.toString(), text(told, side, set));
    this.changed.fire(uri);
    return uri;
  }

  private async choose({ set: used, builders, builder }: Inputs, placeHolder: string, sets: string[]): Promise<string | undefined> {
    const items = sets.map((set): QuickPickItem & { set: string } => ({
      label: set || 'The usual inputs',
      description: set === (builder || used) ? 'used' : '',
      detail: builders.includes(set) ? 'a function of this file builds the model' : set ? '' : 'from comments without a name, else found by MASE',
      set,
    }));
    return (await window.showQuickPick(items, { placeHolder }))?.set;
  }
}
