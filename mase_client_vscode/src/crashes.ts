/** Reacts when the server's process ends by itself. */
import { CloseAction, CloseHandlerResult, ErrorAction, ErrorHandler, ErrorHandlerResult } from 'vscode-languageclient/node';

const MOST = 5;
const WITHIN_MS = 3 * 60_000;

/** Starts the server again, until it has ended `MOST` times within `WITHIN_MS`: then it calls `gaveUp`. */
export class CrashPolicy implements ErrorHandler {
  private times: number[] = [];

  constructor(
    private readonly crashed: () => void,
    private readonly gaveUp: (crashes: number) => void,
  ) {}

  error(): ErrorHandlerResult {
    return { action: ErrorAction.Continue, handled: true };
  }

  closed(): CloseHandlerResult {
    const now = Date.now();
    this.times = [...this.times.filter((time) => now - time < WITHIN_MS), now];
    if (this.times.length < MOST) {
      this.crashed();
      return { action: CloseAction.Restart, handled: true, message: 'The server ended unexpectedly and is started again.' };
    }
    this.gaveUp(this.times.length);
    return { action: CloseAction.DoNotRestart, handled: true, message: 'The server ended unexpectedly too often.' };
  }
}
