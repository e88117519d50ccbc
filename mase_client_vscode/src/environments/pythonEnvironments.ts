/** The interpreter chosen in Microsoft's newer Python Environments extension, if that is installed. */
import { EXTENSION_ID, PythonEnvironmentApi, PythonEnvironments } from '@vscode/python-environments';
import { Disposable, EventEmitter, Uri, extensions } from 'vscode';
import { EnvironmentProvider } from './provider';

export class PythonEnvironmentsProvider implements EnvironmentProvider {
  readonly name = 'the Python Environments extension';
  private readonly changed = new EventEmitter<void>();
  readonly onDidChange = this.changed.event;
  private listener: Disposable | undefined;
  private api: PythonEnvironmentApi | undefined;

  async interpreter(folder: Uri | undefined): Promise<string | undefined> {
    if (extensions.getExtension(EXTENSION_ID) === undefined) return undefined;
    const api = await this.connect();
    const chosen = await api?.getEnvironment(folder);
    return chosen?.execInfo.run.executable;
  }

  dispose(): void {
    this.listener?.dispose();
    this.changed.dispose();
  }

  /** The extension exports nothing while its own setting `useEnvironmentsExtension` is off. */
  private async connect(): Promise<PythonEnvironmentApi | undefined> {
    this.api ??= (await PythonEnvironments.api()) as PythonEnvironmentApi | undefined;
    this.listener ??= this.api?.onDidChangeEnvironment(() => this.changed.fire());
    return this.api;
  }
}
