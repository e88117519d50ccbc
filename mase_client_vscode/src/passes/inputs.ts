/** Asks for the value of one argument. */
import { QuickPickItem, window } from 'vscode';
import { inert } from '../errors';
import { CheckedArgument, PassArgument } from 'mase-client/records';
import { Given, text } from './values';

/** The server's answer about a text: its value, or why it does not fit. */
export type Check = (argument: string, text: string) => Promise<CheckedArgument>;

/** The user's value; null for "as declared"; undefined if they gave up. */
export type Answer = Given | null | undefined;

/** The values to choose from; for a number format any other can be typed. */
function suggestions(argument: PassArgument): string[] {
  return argument.kind === 'boolean' ? ['true', 'false'] : argument.choices;
}

export async function ask(argument: PassArgument, before: Given | undefined, check: Check): Promise<Answer> {
  const known = suggestions(argument);
  const typed = known.length === 0 ? await type(argument, before, check) : await choose(argument, known, before, check);
  if (typed === undefined) return undefined;
  if (typed === '') return null;
  const { value, problem } = await check(argument.name, typed);
  if (problem === undefined) return { text: typed, value };
  void window.showErrorMessage(inert(problem));
  return undefined;
}

async function type(argument: PassArgument, before: Given | undefined, check: Check): Promise<string | undefined> {
  return window.showInputBox({
    title: argument.name,
    prompt: argument.help + (argument.required ? '' : ' (empty: the pass decides)'),
    value: before?.text ?? (argument.default === null ? '' : text(argument.default)),
    validateInput: async (typed) => {
      if (typed === '') return argument.required ? `${argument.name} is needed` : undefined;
      return (await check(argument.name, typed)).problem;
    },
  });
}

/** A list in which other values can be typed, if they fit. */
function choose(argument: PassArgument, known: string[], before: Given | undefined, check: Check): Promise<string | undefined> {
  const pick = window.createQuickPick<QuickPickItem & { answer: string; typed?: boolean }>();
  const now = before?.text ?? (argument.default === null ? '' : text(argument.default));
  const clear = argument.required ? [] : [{ label: 'leave it to the pass', description: text(argument.default ?? ''), answer: '' }];
  const items = known.map((answer) => ({ label: answer, description: answer === now ? 'now' : '', answer }));
  pick.title = argument.name;
  pick.placeholder = argument.help;
  pick.items = [...items, ...clear];
  pick.activeItems = pick.items.filter(({ answer }) => answer === now && now !== '');
  pick.onDidChangeValue(async (typed) => {
    if (argument.kind !== 'format') return;
    const fits = typed !== '' && !known.includes(typed) && (await check(argument.name, typed)).problem === undefined;
    if (pick.value !== typed) return;
    const own = fits ? [{ label: typed, description: 'as typed', alwaysShow: true, answer: typed, typed: true }] : [];
    pick.items = [...items, ...own, ...clear];
  });
  return new Promise((resolve) => {
    pick.onDidAccept(() => {
      const [active] = pick.activeItems;
      const typed = argument.kind === 'format' && (active === undefined || active.typed) ? pick.value : undefined;
      resolve(typed || active?.answer); // the list may lag behind the typed text
      pick.hide();
    });
    pick.onDidHide(() => {
      resolve(undefined);
      pick.dispose();
    });
    pick.show();
  });
}
