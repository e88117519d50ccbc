/** The panels of one kind: at most one for each model, told what is known anew, and back when the window is loaded again. */
import { Disposable, Event, Uri, WebviewPanel, window } from 'vscode';
import { documentOf } from '../notebooks';
import { PassTarget } from '../protocol';
import { Server } from '../server';
import { Kept } from './kept';

/** A panel that VS Code brought back, and what its page kept. */
export interface Brought {
  panel: WebviewPanel;
  kept: Kept;
}

/** A panel with what is known of one model. Its page's end is its own end. */
export interface ModelPanel extends Disposable {
  readonly onClose: Event<void>;
  /** A page that is not seen asks for everything when it is. */
  readonly visible: boolean;
  /** Is anything of it in that file? */
  shows(path: string): boolean;
  /** Ask again. `quiet`: what goes wrong is not told, because the file is about to be traced. */
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

  /** The panel of a model, opened where there is none. */
  of({ path, model }: PassTarget): P {
    return this.open.get(keyOf({ path, model })) ?? this.opened({ path, model });
  }

  /** The pages are left to VS Code: it brings them back when it is only the window that is loaded again. */
  dispose(): void {
    Disposable.from(this.listeners, ...this.open.values()).dispose();
  }

  private changed(paths: string[]): void {
    this.open.forEach((panel) => panel.visible && paths.some((path) => panel.shows(path)) && void panel.refresh());
  }

  /** Its file is opened, so that it is traced: nobody else may have it open. */
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
