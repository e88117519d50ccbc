/** The commands for side documents: hardware (emit, change the build, simulate, save, jump, close), and what compilers make. */
import { Location, LogOutputChannel, Position, Uri, ViewColumn, commands, env, window, workspace } from 'vscode';
import { guarded, inert } from '../errors';
import { isNotebook } from '../notebooks';
import { fill } from '../passes/form';
import { Given, Values, text } from '../passes/values';
import { goTo, presentPlace } from '../places';
import { Build, COMPILED, HARDWARE, PassTarget } from '../protocol';
import { BuildForm } from 'mase-client/records';
import { Server } from '../server';
import { VerilogApi } from './api';
import { close, reveal, showBeside } from './documents';

/** The arguments of a command from a code action, a lens, or a keybinding. With `build` nothing is asked. */
type Asked = Partial<PassTarget> & { build?: Build; scope?: string; line?: number; folder?: string; view?: string };

/** What compilers make of a model. */
const VIEWS = [
  { label: 'Dynamo', description: 'the graphs that torch.compile captures', view: 'dynamo', command: 'mase.showDynamo' },
  { label: 'ATen', description: 'the same as primitive operators', view: 'aten', command: 'mase.showAten' },
  { label: 'ATen in training', description: 'the joint graphs, and the forwards and backwards of which they are made', view: 'joint', command: 'mase.showJoint' },
  { label: 'Inductor', description: 'the code that is generated for the CPU', view: 'inductor', command: 'mase.showInductor' },
  { label: 'Exported program', description: 'of torch.export, with its dynamic sizes', view: 'export', command: 'mase.showExport' },
  { label: 'ONNX', description: 'of the exported program, where onnx and onnxscript are installed', view: 'onnx', command: 'mase.showOnnx' },
  { label: 'FX graph', description: 'the graph of MASE, with its passes', view: 'fx' },
];

/** What a view may be compared with, beside another one. */
const CHANGES = [
  { label: 'Before', description: 'the text before the last save, or with the inputs before', view: 'before' },
  { label: 'With its passes', description: 'the model after the passes that are applied to it', view: 'passes' },
];

const OPEN_FOLDER = 'Open Folder';
const OPEN_WAVE = 'Open Waveform';
/** VS Code's own editor of images, which shows a picture where a text would open. */
const IMAGES = 'imagePreview.previewEditor';
const SHOW_LOG = 'Show Log';

export class VerilogCommands {
  private readonly api: VerilogApi;

  constructor(
    server: Server,
    private readonly log: LogOutputChannel,
  ) {
    this.api = new VerilogApi(server);
  }

  /** The commands by name. Their errors are shown to the user. */
  get table(): Record<string, (given?: Asked) => Promise<void>> {
    const own: Record<string, (target: PassTarget, given: Asked) => Promise<unknown>> = {
      'mase.emitVerilog': (target, given) => this.emit(target, given),
      'mase.verilogSettings': (target) => this.ask(target).then((build) => build && this.show(target, { build })),
      'mase.simulateVerilog': (target) => this.simulate(target, false),
      'mase.recordWaveform': (target) => this.simulate(target, true),
      'mase.saveVerilog': (target, given) => this.save(target, given),
      'mase.closeVerilog': (target) => this.close(target),
      'mase.showCompiled': (target, given) => this.showCompiled(target, given.view),
      'mase.compareCompiled': (target) => this.compareCompiled(target),
    };
    for (const { command, view } of VIEWS) if (command !== undefined) own[command] = (target: PassTarget) => this.showCompiled(target, view);
    const table = Object.entries(own).map(([name, run]) => [name, (given?: Asked) => this.run(run, given ?? {})]);
    return { ...Object.fromEntries(table), 'mase.showVerilogLine': () => this.jump(), 'mase.showPythonLine': (given) => this.jump(given) };
  }

  private async run(command: (target: PassTarget, given: Asked) => Promise<unknown>, given: Asked): Promise<void> {
    await guarded(async () => {
      const target = await this.api.passes.target(given);
      if (target !== undefined) await command(target, given);
    });
  }

  private async emit(target: PassTarget, given: Asked): Promise<void> {
    const { scope, build } = given;
    if (build !== undefined) return this.show(target, { build });
    const known = await this.api.known(target);
    if (known.build) return this.show(target, scope === undefined ? {} : { scope });
    const asked = await this.ask(target);
    if (asked !== undefined) await this.show(target, { build: scope === undefined ? asked : { ...asked, scope } });
  }

  /** The build that the user wants, undefined if they gave up. */
  private async ask(target: PassTarget): Promise<Build | undefined> {
    const form = await this.api.form(target);
    const values = await fill(form, target.model, remembered(form), this.api.check(target, form.name));
    if (values === undefined) return undefined;
    return Object.fromEntries(form.arguments.map(({ name, default: usual }) => [name, values[name]?.value ?? usual]));
  }

  private async show(target: PassTarget, order: { build?: Build; scope?: string }): Promise<void> {
    const told = await this.api.emit(target, order);
    if (told !== null && told.refusal === null) await showBeside(Uri.parse(told.uri));
  }

  private async simulate(target: PassTarget, wave: boolean): Promise<void> {
    const told = await this.api.simulate(target, wave);
    if (told === null) return;
    if (told.log) this.log.error(`${told.summary}\n${told.log}`);
    const tell = told.status === 'equal' ? window.showInformationMessage : window.showErrorMessage;
    const buttons = [...(told.log ? [SHOW_LOG] : []), ...(told.wave ? [OPEN_WAVE] : []), OPEN_FOLDER];
    if (told.wave) await commands.executeCommand('vscode.openWith', Uri.file(told.wave.picture), IMAGES, ViewColumn.Beside);
    void this.follow(tell(inert(told.summary), ...buttons), told.folder, told.wave?.file);
  }

  private async save(target: PassTarget, given: Asked): Promise<void> {
    const folder = given.folder ?? (await chosenFolder(target));
    const told = folder === undefined ? null : await this.api.save(target, folder);
    if (told === null || told.folder === null) return;
    const text = `${told.files.length} files are in ${told.folder}: make sim, make lint and make synth work there.`;
    void this.follow(window.showInformationMessage(inert(text), OPEN_FOLDER), told.folder);
  }

  private async showCompiled(target: PassTarget, given?: string): Promise<void> {
    const title = `What PyTorch's compilers make of ${target.model}`;
    const view = given ?? (await window.showQuickPick(VIEWS, { title }))?.view;
    if (view === undefined) return;
    if (view === 'fx') return void (await commands.executeCommand('mase.showTransformed', target));
    await showBeside(Uri.parse((await this.api.compiled(target, view)).uri));
  }

  private async compareCompiled(target: PassTarget): Promise<void> {
    const title = `What PyTorch's compilers make of ${target.model}`;
    const own = await window.showQuickPick(VIEWS.filter(({ view }) => view !== 'fx'), { title });
    const others = [...CHANGES, ...VIEWS.filter(({ view }) => view !== own?.view)];
    const other = own && (await window.showQuickPick(others, { title: `${own.label}, compared with` }));
    if (other === undefined) return;
    const { before, after } = await this.api.compareCompiled(target, own!.view, other.view);
    const names = other.view === 'before' || other.view === 'fx' ? [other.label, own!.label] : [own!.label, other.label];
    await commands.executeCommand('vscode.diff', Uri.parse(before), Uri.parse(after), `${target.model}: ${names.join(' ↔ ')}`, { preview: true });
  }

  private async close(target: PassTarget): Promise<void> {
    await this.api.close(target);
    await close(target);
  }

  /** Go from either side to the other: to a given line, else from the cursor. */
  private async jump(given?: Asked): Promise<void> {
    await guarded(async () => {
      if (given?.path !== undefined && given.line !== undefined) return this.source(given.path, given.line);
      const editor = window.activeTextEditor;
      if (editor === undefined) return;
      const here = editor.document.uri.toString();
      const found = await this.api.counterparts(here, editor.selection.active);
      const there = found.find(({ uri }) => Uri.parse(uri).toString() !== here);
      const [place] = there?.ranges ?? [];
      if (there === undefined || place === undefined) {
        throw new Error('Nothing here has a counterpart: emit the Verilog of the model first, and go to one of its layers.');
      }
      const uri = Uri.parse(there.uri);
      if (uri.scheme === HARDWARE || uri.scheme === COMPILED) return reveal(await showBeside(uri), place.start.line);
      await goTo(new Location(uri, new Position(place.start.line, 0)), true);
    });
  }

  /** Go to a line of Python, from 1; a notebook's lines are counted through its cells, so the server finds the cell. */
  private async source(path: string, line: number): Promise<void> {
    const place = isNotebook(path)
      ? await presentPlace(this.api.passes, { path, line, column: 0, end_line: line, end_column: 0 })
      : new Location(Uri.file(path), new Position(line - 1, 0));
    if (place !== undefined) await goTo(place, true);
  }

  private async follow(answer: Thenable<string | undefined>, folder: string, wave?: string): Promise<void> {
    const chosen = await answer;
    if (chosen === SHOW_LOG) this.log.show(true);
    // A viewer of waveforms, where an extension for them is installed; else the text.
    if (chosen === OPEN_WAVE && wave !== undefined) await commands.executeCommand('vscode.open', Uri.file(wave));
    if (chosen !== OPEN_FOLDER) return;
    const uri = Uri.file(folder);
    if (env.remoteName === undefined) await commands.executeCommand('revealFileInOS', uri);
    else await commands.executeCommand('vscode.openFolder', uri, { forceNewWindow: true });
  }
}

/** The user's earlier answers, as the form holds them. */
function remembered(form: BuildForm): Values {
  const given = Object.entries(form.given).filter(([, value]) => value !== null && value !== '');
  return Object.fromEntries(given.map(([name, value]): [string, Given] => [name, { text: text(value), value }]));
}

async function chosenFolder({ path, model }: PassTarget): Promise<string | undefined> {
  const home = workspace.getWorkspaceFolder(Uri.file(path))?.uri;
  const [chosen] =
    (await window.showOpenDialog({
      title: `Folder for the Verilog of ${model}`,
      openLabel: 'Write Here',
      canSelectFiles: false,
      canSelectFolders: true,
      ...(home === undefined ? {} : { defaultUri: home }),
    })) ?? [];
  return chosen?.fsPath;
}
