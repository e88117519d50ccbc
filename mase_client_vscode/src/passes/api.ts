/** The extension's requests about passes. */
import { window } from 'vscode';
import { ExecuteCommandRequest } from 'vscode-languageclient/node';
import { pythonEditor } from '../active';
import { CELL } from '../notebooks';
import { PassTarget } from '../protocol';
import { Methods } from 'mase-client/methods';
import { ComparedGraphs, ModelChoice } from 'mase-client/records';
import { Server } from '../server';
import { Check } from './inputs';

/** The methods of the client package, over the language server's protocol, which needs no map around an answer. */
export class PassApi extends Methods {
  constructor(private readonly server: Server) {
    super();
  }

  protected override answer<T>(method: string, params: object): Promise<T> {
    return this.request(method, params);
  }

  check(target: PassTarget, pass: string): Check {
    return (argument, value) => this.request('mase/checkArgument', { ...target, pass, argument, value });
  }

  graphs(target: PassTarget): Promise<ComparedGraphs> {
    return this.execute('mase.compare', { ...target, show: false });
  }

  settings(target: PassTarget): Promise<Record<string, string[]>> {
    return this.execute('mase.writePipeline', { ...target, show: false });
  }

  execute<T>(command: string, argument: object): Promise<T> {
    return this.request(ExecuteCommandRequest.method, { command, arguments: [argument] });
  }

  /** The model of a command: the named one, else one of the active editor's file, or of the file beside a page. */
  async target(given: Partial<PassTarget> | undefined): Promise<PassTarget | undefined> {
    if (given?.path !== undefined && given.model !== undefined) return { ...given, path: given.path, model: given.model };
    const { activeTextEditor: active, activeNotebookEditor: notebook } = window;
    // A page may have the focus, or a notebook without a focused cell.
    const uri = active?.document.uri ?? notebook?.notebook.uri ?? pythonEditor()?.document.uri;
    if (uri === undefined) throw new Error('No model is known: open its Python file.');
    if (uri.scheme !== 'file' && uri.scheme !== CELL) return this.execute<ComparedGraphs>('mase.compare', { uri: uri.toString(), show: false });
    const models = await this.request<ModelChoice[]>('mase/choices', { uri: uri.toString() });
    const picked = models.filter((model) => model.picked);
    const [first, ...others] = picked.length > 0 ? picked : models;
    if (first === undefined) throw new Error(`No model is known of ${uri.fsPath}: wait until its shapes appear.`);
    const items = [first, ...others].map(({ path, model, found }) => ({ label: model, detail: found, path, model }));
    const chosen = others.length === 0 ? first : await window.showQuickPick(items, { placeHolder: 'Which model?' });
    return chosen && { path: chosen.path, model: chosen.model };
  }

  async request<T>(method: string, params: object): Promise<T> {
    if (this.server.running === undefined) throw new Error('The MASE server is not running.');
    return this.server.running.sendRequest<T>(method, params);
  }
}
