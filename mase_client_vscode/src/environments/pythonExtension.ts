/** The interpreter chosen in Microsoft's Python extension, if that is installed. */
import { PVSC_EXTENSION_ID, PythonExtension } from '@vscode/python-extension';
import { Disposable, EventEmitter, Uri, extensions } from 'vscode';
import { EnvironmentProvider } from './provider';

export class PythonExtensionProvider implements EnvironmentProvider {
  readonly name = 'the Python extension';
  private readonly changed = new EventEmitter<void>();
  readonly onDidChange = this.changed.event;
  private listener: Disposable | undefined;
  private api: PythonExtension | undefined;

  async interpreter(folder: Uri | undefined): Promise<string | undefined> {
    if (extensions.getExtension(PVSC_EXTENSION_ID) === undefined) return undefined;
    const { environments } = await this.connect();
    const chosen = await environments.resolveEnvironment(environments.getActiveEnvironmentPath(folder));
    return chosen?.executable.uri?.fsPath;
  }

  dispose(): void {
    this.listener?.dispose();
    this.changed.dispose();
  }

  private async connect(): Promise<PythonExtension> {
    this.api ??= await PythonExtension.api();
    this.listener ??= this.api.environments.onDidChangeActiveEnvironmentPath(() => this.changed.fire());
    return this.api;
  }
}
