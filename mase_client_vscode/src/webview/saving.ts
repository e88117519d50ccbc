/** Saves what a page shows as a file. */
import { Uri, window, workspace } from 'vscode';
import { PassTarget } from '../protocol';

/** `what`: the words in the dialog's title; `suffix` and `ending`: of the proposed name; `kind`: the kind of the files. */
export interface Saved {
  what: string;
  suffix?: string;
  ending: string;
  kind: string;
}

/** Ask for the file, and write it; the dialog proposes a name beside the model's file. */
export async function save({ path, model }: PassTarget, { what, suffix = '', ending, kind }: Saved, content: Uint8Array): Promise<void> {
  const name = `${model.replace(/[^\w.-]+/g, '_')}${suffix}.${ending}`;
  const defaultUri = Uri.joinPath(Uri.file(path), '..', name);
  const uri = await window.showSaveDialog({ defaultUri, filters: { [kind]: [ending] }, title: `Save the ${what} of ${model}` });
  if (uri !== undefined) await workspace.fs.writeFile(uri, content);
}
