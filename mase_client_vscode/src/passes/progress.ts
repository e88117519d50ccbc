/** The progress of work that the user began, as a notification with a cancel button; other progress is in the status bar. */
import { ProgressLocation, window } from 'vscode';
import { Middleware, ProgressToken, WorkDoneProgressBegin, WorkDoneProgressReport } from 'vscode-languageclient/node';

/** How long a pass may take before it gets a notification. */
const PATIENCE_MS = 700;

export function passProgress(cancel: (token: ProgressToken) => void): NonNullable<Middleware['handleWorkDoneProgress']> {
  const running = new Map<ProgressToken, Notice>();
  return (token, params, next) => {
    if (params.kind === 'begin' && params.cancellable) {
      running.set(token, new Notice(params, () => cancel(token)));
    }
    const notice = running.get(token);
    if (params.kind === 'report') notice?.report(params);
    if (params.kind === 'end') {
      notice?.end();
      running.delete(token);
    }
    if (notice === undefined || params.kind === 'end') next(token, params);
  };
}

class Notice {
  private readonly timer = setTimeout(() => this.show(), PATIENCE_MS);
  private told: (message: string) => void = () => undefined;
  private close: () => void = () => undefined;

  constructor(
    private readonly begin: WorkDoneProgressBegin,
    private readonly cancel: () => void,
    private message = begin.message ?? '',
  ) {}

  report({ message }: WorkDoneProgressReport): void {
    this.message = message ?? '';
    this.told(this.message);
  }

  end(): void {
    clearTimeout(this.timer);
    this.close();
  }

  private show(): void {
    const options = { location: ProgressLocation.Notification, cancellable: true, title: this.begin.title };
    void window.withProgress(options, (progress, token) => {
      this.told = (message) => progress.report({ message });
      this.told(this.message);
      token.onCancellationRequested(this.cancel);
      return new Promise<void>((resolve) => (this.close = resolve));
    });
  }
}
