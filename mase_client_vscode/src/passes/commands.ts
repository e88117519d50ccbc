/** The commands for passes: choose, apply, undo, show, store. */
import { Memento, QuickPickItem, QuickPickItemKind, Uri, ViewColumn, commands, window, workspace } from 'vscode';
import { guarded, inert, messageOf } from '../errors';
import { PassTarget } from '../protocol';
import { AppliedPass, Pass } from 'mase-client/records';
import { Server } from '../server';
import { SECTION } from '../settings';
import { PassApi } from './api';
import { fill } from './form';
import { Values, plain } from './values';

/** The arguments of a command from a code action, a lens, or a keybinding. With `arguments` nothing is asked. */
type Given = Partial<PassTarget> & { pass?: string; arguments?: Record<string, unknown> };

/** The groups of the list, in its order. */
const GROUPS: [string, (pass: Pass) => boolean][] = [
  ['your own', ({ source }) => source !== ''],
  ['transforms', ({ source, kind }) => source === '' && kind === 'transform'],
  ['analyses', ({ source, kind }) => source === '' && kind === 'analysis'],
];
const SHOWN_MS = 8000;
const CHANGE = 'Change Arguments';

export class PassCommands {
  private readonly api: PassApi;

  constructor(
    server: Server,
    private readonly memory: Memento,
  ) {
    this.api = new PassApi(server);
  }

  /** The commands by name. Their errors are shown to the user. */
  get table(): Record<string, (given?: Given) => Promise<void>> {
    const own: Record<string, (target: PassTarget, given: Given) => Promise<unknown>> = {
      'mase.applyPass': (target, given) => this.apply(target, given),
      'mase.choosePass': (target, given) => this.apply(target, given),
      'mase.undoPass': (target) => this.api.execute('mase.undoPass', target),
      'mase.redoPass': (target) => this.api.execute('mase.redoPass', target),
      'mase.resetPasses': (target) => this.api.execute('mase.resetPasses', target),
      'mase.pipeline': (target) => this.pipeline(target),
      'mase.showTransformed': (target) => this.showTransformed(target),
      'mase.compare': (target) => this.compare(target),
      'mase.writePipeline': (target) => this.write(target),
    };
    return Object.fromEntries(Object.entries(own).map(([name, run]) => [name, (given) => this.run(run, given ?? {})]));
  }

  private async run(command: (target: PassTarget, given: Given) => Promise<unknown>, given: Given): Promise<void> {
    await guarded(async () => {
      const target = await this.api.target(given);
      if (target !== undefined) await command(target, given);
    });
  }

  private async apply(target: PassTarget, given: Given): Promise<void> {
    const passes = await this.api.passes({ path: target.path, model: target.model, only: target.only ?? [] });
    const pass = given.pass === undefined ? await choose(passes, target) : passes.find(({ name }) => name === given.pass);
    if (pass === undefined) {
      if (given.pass !== undefined) throw new Error(`There is no pass ${given.pass}.`);
      return;
    }
    if (given.arguments !== undefined) return this.carryOut(pass, target, given.arguments);
    const key = `${SECTION}.pass.${pass.name}`;
    let values: Values | undefined = this.memory.get<Values>(key, {});
    for (let again: string | undefined = CHANGE; again === CHANGE; ) {
      values = await fill(pass, target.name ?? target.model, values, this.api.check(target, pass.name));
      if (values === undefined) return;
      try {
        await this.carryOut(pass, target, plain(values));
        return void (await this.memory.update(key, values)); // refused values are not proposed next time
      } catch (error) {
        again = await window.showErrorMessage(inert(messageOf(error)), CHANGE);
      }
    }
  }

  private async carryOut(pass: Pass, target: PassTarget, values: Record<string, unknown>): Promise<void> {
    const done = await this.api.execute<AppliedPass | null>('mase.applyPass', { ...target, pass: pass.name, arguments: values });
    if (done === null) return;
    const told = `${pass.title}: ${done.info || 'done'}`;
    if (pass.kind === 'analysis') void window.showInformationMessage(inert(told));
    else window.setStatusBarMessage(`MASE: ${told}`, SHOWN_MS);
  }

  private async pipeline(target: PassTarget): Promise<void> {
    const { steps = [], undone = [] } = await this.api.pipeline({ path: target.path, model: target.model });
    const listed = steps.map((label, index) => ({
      label: `${index + 1}. ${label}`,
      description: 'remove this one',
      run: () => this.api.setPipeline({ path: target.path, model: target.model, steps: steps.filter((_, other) => other !== index) }),
    }));
    const command = (label: string, name: string) => ({ label, run: () => commands.executeCommand(name, target) });
    const some = steps.length > 0;
    const items: (QuickPickItem & { run?: () => Thenable<unknown> })[] = [
      ...(some ? [command(`$(discard) Undo ${steps.at(-1)}`, 'mase.undoPass')] : []),
      ...(undone[0] === undefined ? [] : [command(`$(redo) Redo ${undone[0]}`, 'mase.redoPass')]),
      ...(some ? [command('$(clear-all) Remove all', 'mase.resetPasses')] : []),
      command('$(add) Apply another pass', 'mase.choosePass'),
      ...(some ? [command('$(diff) Compare with the original', 'mase.compare')] : []),
      command('$(file-code) Show the code', 'mase.showTransformed'),
      command('$(save) Write to the settings', 'mase.writePipeline'),
      ...(some ? [{ label: 'applied at every save', kind: QuickPickItemKind.Separator }] : []),
      ...listed,
    ];
    const chosen = await window.showQuickPick(items, { title: `Passes on ${target.model}` });
    await chosen?.run?.();
  }

  private async showTransformed(target: PassTarget): Promise<void> {
    const { transformed } = await this.api.graphs(target);
    await window.showTextDocument(Uri.parse(transformed), { viewColumn: ViewColumn.Beside, preview: true });
  }

  private async compare(target: PassTarget): Promise<void> {
    const { model, original, transformed } = await this.api.graphs(target);
    const title = `${model}: original ↔ transformed`;
    await commands.executeCommand('vscode.diff', Uri.parse(original), Uri.parse(transformed), title, { preview: true });
  }

  /** Store the applied passes in the settings of the file's folder. */
  private async write(target: PassTarget): Promise<void> {
    const file = Uri.file(target.path);
    if (workspace.getWorkspaceFolder(file) === undefined) {
      throw new Error(`${target.path} is in no folder of the workspace, so it has no settings: open its folder.`);
    }
    const settings = workspace.getConfiguration(SECTION, file);
    const before = settings.inspect<Record<string, string[]>>('pipelines');
    const form = await this.api.settings(target);
    await settings.update('pipelines', { ...(before?.workspaceFolderValue ?? before?.workspaceValue), ...form });
    window.setStatusBarMessage(`MASE: the passes were written to the settings of this ${before?.workspaceFolderValue ? 'folder' : 'workspace'}`, SHOWN_MS);
  }
}

async function choose(passes: Pass[], target: PassTarget): Promise<Pass | undefined> {
  const some = (target.only ?? []).length > 0;
  const fitting = passes.filter(({ menu, selects }) => menu && (selects || !some));
  const items = GROUPS.flatMap(([label, has]): (QuickPickItem & { pass?: Pass })[] => [
    { label, kind: QuickPickItemKind.Separator },
    ...fitting.filter(has).map((pass) => ({ label: pass.title, description: pass.name, detail: pass.help, pass })),
  ]);
  const placeHolder = fitting.length > 0 ? 'Which pass?' : 'No passes are known yet: the file is being traced';
  return (await window.showQuickPick(items, { title: `Passes for ${target.name ?? target.model}`, placeHolder, matchOnDescription: true }))?.pass;
}
