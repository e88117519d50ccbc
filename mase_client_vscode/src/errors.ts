/** What goes wrong, as a person reads it. */
import { window } from 'vscode';

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : `${error}`;
}

/** Carry out what a person asked for; what goes wrong is shown to them. */
export async function guarded(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    void window.showErrorMessage(messageOf(error));
  }
}
