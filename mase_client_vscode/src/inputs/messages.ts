/** What the form for inputs and the extension tell each other; the server's answers as `answers/inputs.py` has them. */
import { Kept } from '../webview/kept';

/** A value: a tensor is [type, sizes, their names]. */
export type Value = null | [string, number[], string[] | null] | { tuple: Value[] } | { dict: Record<string, Value> } | { python: string };

/** An input or an argument. `why`: why its value has no text. */
export interface Field {
  name: string;
  text: string;
  why: string;
  required: boolean;
  default: string;
}

/** `call`: what makes the model, '' where no comment can say that. */
export interface Form {
  call: string;
  arguments: Field[];
  inputs: Field[];
}

/** `field`: such as `inputs.x`, '' where it is of none. */
export interface Problem {
  severity: string;
  field: string;
  message: string;
}

export interface Figures {
  set: string;
  inputs: Record<string, Value> | null;
  inputs_from: string;
  arguments_from: string;
  found: string;
  outputs: Value;
  parameters: number | null;
  flops: number | null;
  bytes: number | null;
  form: Form | null;
}

/** What would come of a set. `comment`: what it would be written as. */
export interface Trial extends Figures {
  comment: string;
  problems: Problem[];
}

/** What the texts of the fields say. `arguments` is missing where the call is left to what is found. */
export interface Said {
  inputs: Record<string, string>;
  arguments?: Record<string, string>;
}

/** `sets`: the named ones; `used`: the one that the model is traced with; `set`: the one in the form, '' for comments without a name. */
export interface Sets extends Kept {
  sets: string[];
  used: string;
  set: string;
}

export type ToPage =
  | ({ type: 'form'; trial: Trial } & Sets)
  | { type: 'trial'; number: number; trial: Trial }
  | { type: 'notice'; text: string };

export type FromPage =
  | { type: 'select'; set: string }
  | { type: 'try'; number: number; set: string; said: Said }
  | { type: 'apply'; set: string; text: string }
  | { type: 'remove'; set: string }
  | { type: 'compare'; set: string };

/** What the page keeps: whose form it is, and texts of one set that were typed and are not written yet. */
export interface KeptForm extends Kept {
  set: string;
  texts: Record<string, string>;
}
