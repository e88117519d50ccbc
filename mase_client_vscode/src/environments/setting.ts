/** The interpreter in the setting `mase.interpreter`. */
import { EventEmitter, Uri, workspace } from 'vscode';
import { SECTION, interpreter } from '../settings';
import { EnvironmentProvider } from './provider';

export class SettingProvider implements EnvironmentProvider {
  readonly name = 'the setting mase.interpreter';
  private readonly changed = new EventEmitter<void>();
  readonly onDidChange = this.changed.event;
  private readonly listener = workspace.onDidChangeConfiguration((event) => {
    if (event.affectsConfiguration(`${SECTION}.interpreter`)) this.changed.fire();
  });

  async interpreter(folder: Uri | undefined): Promise<string | undefined> {
    return interpreter(folder);
  }

  dispose(): void {
    this.listener.dispose();
    this.changed.dispose();
  }
}
