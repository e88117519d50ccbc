/** Shows errors to the user. */
import { window } from 'vscode';

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : `${error}`;
}

/** A notification with texts of others: its `[text](command:...)` must not become a link of ours. */
export function inert(text: string): string {
  return text.replaceAll('](', '] (');
}

/** Run a user's command, and show its error if it fails. */
export async function guarded(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    void window.showErrorMessage(inert(messageOf(error)));
  }
}
