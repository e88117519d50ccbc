/** The commands that show the costs of a model, and pick the device that they are told for. */
import { Disposable, Uri, window } from 'vscode';
import { guarded } from '../errors';
import { inGB } from '../figures';
import { PassApi } from '../passes/api';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Panels } from '../webview/panels';
import { CostPanel, KIND } from './panel';

/** The arguments of the command from a lens or a link. `row`: the id of a row to show. */
type Asked = Partial<PassTarget> & { row?: string };

/** What may be run on a device: the server's optimizers, and inference without one. */
const MODES = [
  { label: 'Inference', description: 'one forward, without gradients', train: '' },
  { label: "Training, the file's own optimizer", description: 'AdamW if it makes none', train: 'auto' },
  { label: 'Training, AdamW', train: 'adamw' },
  { label: 'Training, Adam', train: 'adam' },
  { label: 'Training, SGD', train: 'sgd' },
  { label: 'Training, SGD with momentum', train: 'momentum' },
  { label: 'Training, Adafactor', train: 'adafactor' },
  { label: 'Training, 8-bit Adam', train: 'adam8bit' },
];
const DTYPES = [
  { label: 'As the model has them', dtype: '' },
  { label: 'Mixed', description: 'the forward under an autocast to bfloat16', dtype: 'amp' },
  { label: 'bfloat16', dtype: 'bf16' },
  { label: 'float16', dtype: 'fp16' },
  { label: 'float32', dtype: 'fp32' },
];

export class CostCommands implements Disposable {
  private readonly api: PassApi;
  private readonly panels: Panels<CostPanel>;

  constructor(server: Server, extension: Uri) {
    this.api = new PassApi(server);
    this.panels = new Panels(KIND.type, server, (target, brought) => new CostPanel(target, this.api, extension, brought));
  }

  get table(): Record<string, (given?: Asked) => Promise<void>> {
    return {
      'mase.showCosts': (given) => guarded(() => this.show(given ?? {})),
      'mase.compareCosts': (given) => guarded(() => this.compare(given ?? {})),
      'mase.pickDevice': (given) => guarded(() => this.pick(given ?? {})),
    };
  }

  dispose(): void {
    this.panels.dispose();
  }

  /** The server asks what to compare with, and shows the difference. */
  private async compare(given: Asked): Promise<void> {
    const target = await this.api.target(given);
    if (target !== undefined) await this.api.execute('mase.compareCosts', target);
  }

  /** Ask for a device, a mode and an element type, and have the server show and keep them for the folder. */
  private async pick(given: Asked): Promise<void> {
    const { path } = given.path === undefined ? (await this.api.target(given)) ?? {} : given;
    if (path === undefined) return;
    const { devices } = await this.api.devices({ path });
    const listed = devices.map(({ name, title, memory }) => ({ label: name, description: [title, memory > 0 ? inGB(memory) : ''].filter(Boolean).join(' · '), device: name }));
    const none = { label: 'None', description: 'show no memory and no times', device: '' };
    const title = 'Memory and time on a device';
    const chosen = await window.showQuickPick([none, ...listed], { title, placeHolder: 'Which device? It need not be here', matchOnDescription: true });
    if (chosen === undefined) return;
    const { device } = chosen;
    if (device === '') return this.api.execute('mase.pickDevice', { path, device });
    const mode = await window.showQuickPick(MODES, { title, placeHolder: `What runs on ${device}?` });
    const type = mode && (await window.showQuickPick(DTYPES, { title, placeHolder: 'The element type of parameters and inputs' }));
    if (type !== undefined) await this.api.execute('mase.pickDevice', { path, device, train: mode?.train, dtype: type.dtype });
  }

  /** The costs of the named model, else of a model in the active editor's file. */
  private async show(given: Asked): Promise<void> {
    const target = await this.api.target(given);
    if (target !== undefined) this.panels.of(target).reveal(given.row);
  }
}
