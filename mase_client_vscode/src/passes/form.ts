/** The form of a pass: Enter applies it as shown; every argument can be changed before. */
import { QuickPickItem, QuickPickItemKind, window } from 'vscode';
import { Pass, PassArgument } from 'mase-client/records';
import { Check, ask } from './inputs';
import { Values, asked, further, missing, shown, summary } from './values';

type Item = QuickPickItem & { argument?: PassArgument; act?: 'apply' | 'add' };

/** The values chosen by the user, undefined if they gave up. */
export async function fill(pass: Pass, target: string, remembered: Values, check: Check): Promise<Values | undefined> {
  let values = remembered;
  for (let active = 0; ; ) {
    const items = entries(pass, target, values);
    const chosen = await show(items, `${pass.title} ${target}`, active);
    if (chosen === undefined) return undefined;
    active = items.indexOf(chosen);
    const [first] = missing(pass, values);
    const argument = chosen.act === 'apply' ? first : chosen.act === 'add' ? await name(pass) : chosen.argument;
    if (chosen.act === 'apply' && argument === undefined) return values;
    if (argument === undefined) continue;
    const answer = await ask(argument, values[argument.name], check);
    if (answer === undefined) continue;
    const { [argument.name]: _, ...others } = values;
    values = answer === null ? others : { ...others, [argument.name]: answer };
    if (chosen.act === 'apply' && missing(pass, values).length === 0) return values;
    if (chosen.argument !== undefined) active = 0;
  }
}

function entries(pass: Pass, target: string, values: Values): Item[] {
  const [first] = missing(pass, values);
  const description = first === undefined ? summary(values) : `asks for ${first.name}`;
  const apply: Item = { label: `$(play) ${pass.title} ${target}`, description, detail: pass.help, act: 'apply' };
  const named = asked(pass).map((argument) => entry(argument, values));
  const { others } = pass;
  const more = others === null ? [] : further(pass, values).map((name) => entry({ ...others, name }, values));
  const add: Item[] = others === null ? [] : [{ label: '$(add) Another argument', detail: others.help, act: 'add' }];
  if (named.length + add.length === 0) return [apply];
  return [apply, { label: 'arguments', kind: QuickPickItemKind.Separator }, ...named, ...more, ...add];
}

function entry(argument: PassArgument, values: Values): Item {
  const changed = values[argument.name] === undefined ? '' : '$(edit) ';
  return { label: argument.name, description: changed + shown(argument, values), detail: argument.help, argument };
}

async function name(pass: Pass): Promise<PassArgument | undefined> {
  if (pass.others === null) return undefined;
  const name = await window.showInputBox({ title: 'The name of the argument', prompt: pass.others.help });
  return name ? { ...pass.others, name, required: false, default: null } : undefined;
}

function show(items: Item[], title: string, active: number): Promise<Item | undefined> {
  const pick = window.createQuickPick<Item>();
  pick.title = title;
  pick.placeholder = 'Enter applies it; choose an argument to change it';
  pick.matchOnDescription = true;
  pick.items = items;
  pick.activeItems = items.slice(active, active + 1);
  return new Promise((resolve) => {
    pick.onDidAccept(() => {
      resolve(pick.activeItems[0]);
      pick.hide();
    });
    pick.onDidHide(() => {
      resolve(undefined);
      pick.dispose();
    });
    pick.show();
  });
}
