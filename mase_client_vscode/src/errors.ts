/** What goes wrong, as a person reads it. */
import { window } from 'vscode';

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : `${error}`;
}

/** A text for a notification that holds words of others: VS Code takes `[text](command:...)` in it for a link of ours. */
export function inert(text: string): string {
  return text.replaceAll('](', '] (');
}

/** Carry out what a person asked for; what goes wrong is shown to them. */
export async function guarded(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    void window.showErrorMessage(inert(messageOf(error)));
  }
}
