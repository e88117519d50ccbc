/** The panels of one kind: at most one for each model, updated with new results, and restored when the window is reloaded. */
import { Disposable, Event, Uri, WebviewPanel, window } from 'vscode';
import { documentOf } from '../notebooks';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Kept } from './kept';

/** A panel that VS Code restored, and the state that its page stored. */
export interface Brought {
  panel: WebviewPanel;
  kept: Kept;
}

/** A panel with the results of one model. It ends when its page ends. */
export interface ModelPanel extends Disposable {
  readonly onClose: Event<void>;
  /** A hidden page requests everything when it is shown. */
  readonly visible: boolean;
  /** Does that file contain anything of it? */
  shows(path: string): boolean;
  /** Request again. `quiet`: errors are not shown, because the file is about to be traced. */
  refresh(quiet?: boolean): Promise<void>;
}

export class Panels<P extends ModelPanel> implements Disposable {
  private readonly open = new Map<string, P>();
  private readonly listeners: Disposable;

  /** `type`: VS Code's view type. */
  constructor(
    type: string,
    server: Server,
    private readonly make: (target: PassTarget, brought?: Brought) => P,
  ) {
    const again = (panel: WebviewPanel, kept: unknown): Promise<void> => this.again(panel, kept as Partial<Kept> | undefined);
    this.listeners = Disposable.from(
      server.onViews((uris) => this.changed(uris.map((uri) => Uri.parse(uri).fsPath))),
      window.registerWebviewPanelSerializer(type, { deserializeWebviewPanel: again }),
    );
  }

  /** The panel of a model, which is opened if necessary. */
  of({ path, model }: PassTarget): P {
    return this.open.get(keyOf({ path, model })) ?? this.opened({ path, model });
  }

  /** The pages are left to VS Code, which restores them if only the window is reloaded. */
  dispose(): void {
    Disposable.from(this.listeners, ...this.open.values()).dispose();
  }

  private changed(paths: string[]): void {
    this.open.forEach((panel) => panel.visible && paths.some((path) => panel.shows(path)) && void panel.refresh());
  }

  /** Open its file, so that it is traced, because possibly no editor has it open. */
  private async again(panel: WebviewPanel, kept: Partial<Kept> | undefined): Promise<void> {
    const { path, model } = kept ?? {};
    if (path === undefined || model === undefined) return panel.dispose();
    this.opened({ path, model }, { panel, kept: { ...kept, path, model } });
    await documentOf(Uri.file(path));
  }

  private opened(target: PassTarget, brought?: Brought): P {
    const key = keyOf(target);
    const panel = this.make(target, brought);
    this.open.set(key, panel);
    panel.onClose(() => this.open.get(key) === panel && this.open.delete(key));
    return panel;
  }
}

function keyOf({ path, model }: PassTarget): string {
  return `${path}\n${model}`;
}
