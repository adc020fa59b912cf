/* The native functions of Stacks.java. */
#include <jni.h>

JNIEXPORT void JNICALL Java_Stacks_mark(JNIEnv *env, jclass self, jint number)
{
	(void)env, (void)self, (void)number;
	__asm__ volatile("" ::: "memory");
}

JNIEXPORT void JNICALL Java_Stacks_through(JNIEnv *env, jclass self, jint number)
{
	jmethodID back = (*env)->GetStaticMethodID(env, self, "back", "(I)V");
	if (back)
		(*env)->CallStaticVoidMethod(env, self, back, number);
}
